// Python extension `_cuda`: devices, arenas, plans, passes, graphs, events, the clock probe, time marks, stamps and energy
// probes. Turns Python values into the library's own and releases the GIL while the device works; decides nothing.
#include <cublasLt.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "exceptions.hpp"
#include "kdvfs/clock_probe.hpp"
#include "kdvfs/energy_probe.hpp"
#include "kdvfs/pass.hpp"
#include "kdvfs/plan.hpp"
#include "kdvfs/stamper.hpp"
#include "kdvfs/stream.hpp"
#include "kdvfs/time_marks.hpp"

namespace {

namespace py = pybind11;
using namespace kdvfs;

using Unlocked = py::call_guard<py::gil_scoped_release>;

py::dict facts_of(const Device &device) {
  py::dict facts;
  facts["name"] = device.properties.name;
  facts["uuid"] = device.uuid();
  facts["compute_capability"] = std::to_string(device.properties.major) + "." + std::to_string(device.properties.minor);
  facts["sm_count"] = device.limits.sm_count;
  facts["threads_per_sm"] = device.limits.threads_per_sm;
  facts["l2_byte"] = device.limits.l2_bytes;
  facts["memory_byte"] = device.properties.totalGlobalMem;
  facts["driver"] = device.driver;
  facts["runtime"] = device.runtime;
  facts["cublaslt"] = cublasLtGetVersion();
  return facts;
}

// --- options of a plan ------------------------------------------------------------------------------------------

// Values of the options' dicts, or one line on what is wrong with them.
py::dict dict_of(const char *op, const std::string &name, const py::handle value) {
  if (!py::isinstance<py::dict>(value)) {
    refuse(op, name, shown(value), "a dict");
  }
  return py::reinterpret_borrow<py::dict>(value);
}

std::string string_of(const char *op, const std::string &name, const py::handle value) {
  if (!py::isinstance<py::str>(value)) {
    refuse(op, name, shown(value), "a string");
  }
  return value.cast<std::string>();
}

double number_of(const char *op, const std::string &name, const py::handle value) {
  const auto number = detail::number(value);
  if (!number || !std::isfinite(*number)) {
    refuse(op, name, shown(value), "a finite number");
  }
  return *number;
}

std::int64_t size_of(const char *op, const std::string &name, const py::handle value) {
  const auto size = detail::integer(value);
  if (!size || *size < 0) {
    refuse(op, name, shown(value), "an int >= 0");
  }
  return *size;
}

Fill fill_of(const char *op, const std::string &tensor, const py::dict &given) {
  const std::string name = "fill of " + tensor;
  refuse_unknown(op, "fill", given, {"kind", "mean", "sd", "rows", "columns", "vocabulary"});
  const auto number = [&](const char *key, double otherwise) {
    return given.contains(key) ? number_of(op, name + ": " + key, given[key]) : otherwise;
  };
  const auto size = [&](const char *key) {
    return given.contains(key) ? size_of(op, name + ": " + key, given[key]) : std::int64_t{0};
  };
  const std::string kind = given.contains("kind") ? string_of(op, name + ": kind", given["kind"]) : "";
  Fill fill;
  if (kind == "normal" || kind == "lower") {
    const auto form = kind == "normal" ? Fill::normal : Fill::lower;
    fill = {form, number("mean", 0), number("sd", 1), size("rows"), size("columns"), 0};
  } else if (kind == "causal") {
    fill = Fill::attention();
  } else if (kind == "ids") {
    fill = Fill::tokens(size("vocabulary"));
  } else if (kind != "zero") {
    refuse(op, name, "'" + kind + "'", "normal, lower, causal, ids or zero");
  }
  return fill;
}

std::map<std::string, Binding> bindings_of(const char *op, const py::dict &given) {
  std::map<std::string, Binding> bindings;
  for (const auto &[key, value] : given) {
    const std::string tensor = string_of(op, "a name in tensors", key);
    const py::dict wanted = dict_of(op, "tensors: " + tensor, value);
    refuse_unknown(op, "binding", wanted, {"name", "fill"});
    Binding binding;
    if (wanted.contains("name")) {
      binding.shared = string_of(op, "tensors: " + tensor + ": name", wanted["name"]);
    }
    if (wanted.contains("fill")) {
      binding.has_fill = true;
      binding.fill = fill_of(op, tensor, dict_of(op, "fill of " + tensor, wanted["fill"]));
    }
    bindings.emplace(tensor, binding);
  }
  return bindings;
}

std::shared_ptr<Plan> plan(std::shared_ptr<Arena> arena, const std::string &op, const py::dict &settings,
                           const py::dict &tensors, const std::string &variant, const py::object &rotate,
                           const py::object &seed, const py::object &zipf_exponent, const py::object &algorithm) {
  const char *const name = op.c_str();
  Options options;
  options.tensors = bindings_of(name, tensors);
  options.variant = variant;
  options.rotate = static_cast<int>(std::min<std::int64_t>(size_of(name, "rotate", rotate), 1 << 20));
  options.seed = static_cast<std::uint64_t>(size_of(name, "seed", seed));
  if (!zipf_exponent.is_none()) {
    options.zipf_exponent = number_of(name, "zipf_exponent", zipf_exponent);
    if (options.zipf_exponent < 0) {
      refuse(name, "zipf_exponent", shown(zipf_exponent), "at least 0, or None for uniform ids");
    }
  }
  if (py::isinstance<py::bytes>(algorithm)) {
    options.pinned = algorithm.cast<std::string>();
  } else {
    options.algorithm = string_of(name, "algorithm", algorithm);
  }
  return with_operation(op, [&](auto empty) -> std::shared_ptr<Plan> {
    auto args = read_settings<decltype(empty)>(settings);
    args.dtype = KDVFS_BF16;
    const py::gil_scoped_release release;
    return make_plan(std::move(arena), args, options);
  });
}

// --- energy probes ----------------------------------------------------------------------------------------------

ProbeSettings probe_settings(const std::string &kind, const py::object &warps, const py::object &sms,
                             const py::object &iterations, const std::string &operands, const py::object &byte,
                             const py::object &seed, int sm_count) {
  const char *const name = "energy probe";
  ProbeSettings settings;
  settings.kind = kind;
  settings.operands = operands;
  settings.warps = size_of(name, "warps", warps);
  settings.sms = sms.is_none() ? sm_count : size_of(name, "sms", sms);
  settings.iterations = size_of(name, "iterations", iterations);
  settings.bytes = size_of(name, "byte", byte);
  settings.seed = static_cast<std::uint64_t>(size_of(name, "seed", seed));
  return settings;
}

py::dict facts_of(const ProbeSettings &settings, const ProbeWork &work) {
  py::dict facts;
  facts["kind"] = settings.kind;
  facts["operands"] = settings.operands;
  facts["warps"] = settings.warps;
  facts["sms"] = settings.sms;
  facts["iterations"] = settings.iterations;
  facts["unit"] = work.unit;
  facts["operations"] = work.operations;
  facts["level"] = work.level;
  facts["read_byte"] = work.read_bytes;
  facts["write_byte"] = work.write_bytes;
  return facts;
}

// --- tensors of a plan ------------------------------------------------------------------------------------------

py::dtype numpy_type(const DeviceTensor &tensor) {
  switch (tensor.element) {
    case Element::float32:
      return py::dtype::of<float>();
    case Element::int32:
      return py::dtype::of<std::int32_t>();
    default:
      return py::dtype::of<std::uint16_t>();
  }
}

const DeviceTensor &tensor_of(const Plan &plan, const std::string &name) {
  Names names;
  for (const DeviceTensor &tensor : plan.tensors()) {
    if (tensor.tensor == name) {
      return tensor;
    }
    names.push_back(tensor.tensor);
  }
  refuse(plan.name().c_str(), "tensor", "'" + name + "'", "one of " + listed(names));
}

py::array read_tensor(const Plan &plan, const std::string &name) {
  const DeviceTensor &tensor = tensor_of(plan, name);
  py::array array(numpy_type(tensor), std::vector<py::ssize_t>(tensor.shape.begin(), tensor.shape.end()));
  void *const data = array.mutable_data();
  const py::gil_scoped_release release;
  plan.read(name, data);
  return array;
}

void write_tensor(Plan &plan, const std::string &name, const py::array &array) {
  const DeviceTensor &tensor = tensor_of(plan, name);
  const Shape shape(array.shape(), array.shape() + array.ndim());
  if (!array.dtype().equal(numpy_type(tensor)) || shape != tensor.shape || !(array.flags() & py::array::c_style)) {
    refuse(plan.name().c_str(), name, std::string(py::str(array.dtype())) + " " + text(shape),
           "a C-contiguous " + std::string(py::str(numpy_type(tensor))) + " " + text(tensor.shape));
  }
  const void *const data = array.data();
  const py::gil_scoped_release release;
  plan.write(name, data);
}

py::list tensors_of(const Plan &plan) {
  std::vector<Tensor> tensors;
  for (const DeviceTensor &tensor : plan.tensors()) {
    tensors.push_back({tensor.tensor, tensor.output, numpy_type(tensor), tensor.shape});
  }
  return as_list(tensors);
}

py::dict facts_of(const Plan &plan) {
  py::dict facts;
  for (const auto &[name, value] : plan.facts()) {
    facts[name.c_str()] = py::cast(value);
  }
  if (const std::string pinned = plan.pinned(); !pinned.empty()) {
    facts["pinned"] = py::bytes(pinned);
  }
  return facts;
}

// Device memory as other libraries take it without a copy (CuPy, PyTorch, Numba: the CUDA array interface, version 3).
// bf16 appears as its uint16 bits. Keeps the plan, and with it the memory.
struct DeviceArray {
  std::shared_ptr<Plan> plan;
  std::string tensor;

  py::dict interface() const {
    const DeviceTensor &of = tensor_of(*plan, tensor);
    py::dict out;
    out["shape"] = py::tuple(py::cast(std::vector<py::ssize_t>(of.shape.begin(), of.shape.end())));
    out["typestr"] = py::cast<std::string>(py::object(numpy_type(of).attr("str")));
    out["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(of.data), false);
    out["stream"] = reinterpret_cast<std::uintptr_t>(plan->device()->stream);  // for the reader to wait on
    out["version"] = 3;
    return out;
  }
};

// (stamps, 4): time ns, cycles, bytes read, mark.
py::array_t<std::int64_t> stamps_of(const Stamper &stamper, std::int64_t first) {
  static_assert(sizeof(Stamp) == 4 * sizeof(std::int64_t), "a stamp is a row of the array");
  const auto found = stamper.stamps(first);
  py::array_t<std::int64_t> array({static_cast<py::ssize_t>(found.size()), py::ssize_t{4}});
  std::copy_n(reinterpret_cast<const std::int64_t *>(found.data()), 4 * found.size(), array.mutable_data());
  return array;
}

// An event keeps its device, which C++ events only borrow.
struct HeldEvent {
  std::shared_ptr<Device> device;
  Event event;
  explicit HeldEvent(std::shared_ptr<Device> held) : device(std::move(held)), event(*device) {}
};

}  // namespace

PYBIND11_MODULE(_cuda, m, py::mod_gil_not_used()) {
  m.doc() = "CUDA kernels of a transformer layer: plans that can be repeated for seconds, passes, graphs, clocks.";
  register_exceptions(m);
  m.attr("OPERATIONS") = py::tuple(py::cast(operation_names()));
  m.attr("HAS_FUSED_ATTENTION") = has_fused_attention();
  m.def(
      "versions",
      [] {
        int runtime = 0;
        cudaRuntimeGetVersion(&runtime);
        py::dict versions;
        versions["runtime"] = runtime;
        versions["cublaslt"] = cublasLtGetVersion();
        return versions;
      },
      "CUDA runtime and cuBLASLt, as the libraries count; needs no GPU");

  // every class is the module's own: two builds can be loaded in one process
  const py::module_local own;
  py::class_<Device, std::shared_ptr<Device>>(m, "Device", own,
                                              "One GPU with a stream of its own; one thread at a time.")
      .def(py::init<int>(), py::arg("index") = 0, Unlocked())
      .def("info", [](const Device &device) { return facts_of(device); })
      .def("free_byte", &Device::free_bytes, Unlocked())
      .def("synchronize", &Device::synchronize, Unlocked(), "Wait for all that was enqueued.")
      .def("copy_ms", &Device::copy_ms, py::arg("byte"), py::arg("n"), Unlocked(),
           "Milliseconds of n device-to-device copies of `byte` bytes: 2 * byte * n are moved.");

  py::class_<Arena, std::shared_ptr<Arena>>(m, "Arena", own, "Device memory of plans that share tensors by name.")
      .def(py::init<std::shared_ptr<Device>, std::size_t>(), py::arg("device").none(false), py::arg("offset_byte") = 0,
           Unlocked(), "offset_byte: held before all tensors, so that these lie elsewhere. Raises OutOfMemory.");

  py::class_<Graph>(m, "Graph", own, "Captured launches.")
      .def("launch", &Graph::launch, py::arg("n") = 1, Unlocked(), "Enqueue n replays.")
      .def("time", &Graph::time_ms, py::arg("n") = 1, Unlocked(), "Milliseconds of n replays, between two events.");

  py::class_<Runnable, std::shared_ptr<Runnable>>(m, "Runnable", own, "What can be enqueued: a Plan or a Pass.")
      .def("run", &Runnable::run, py::arg("n") = 1, Unlocked(), "Enqueue n repetitions and return.")
      .def("time", &Runnable::time_ms, py::arg("n") = 1, Unlocked(),
           "Milliseconds of n repetitions, between two events.")
      .def("capture", &Runnable::capture, py::arg("n") = 1, Unlocked(), "A Graph of n repetitions.");

  py::class_<Plan, Runnable, std::shared_ptr<Plan>>(m, "Plan", own, "One operation at one shape, ready to run.")
      .def(py::init(&plan), py::arg("arena").none(false), py::arg("op"), py::arg("settings"), py::kw_only(),
           py::arg("tensors") = py::dict(), py::arg("variant") = "vector", py::arg("rotate") = 1, py::arg("seed") = 1,
           py::arg("zipf_exponent") = py::none(), py::arg("algorithm") = "heuristic",
           "tensors: {tensor: {'name': shared name, 'fill': {...}}}; variant: 'vector' or, for permutes and\n"
           "softmax_backward, 'scalar'; rotate: sets of buffers used in turn; algorithm (gemm): 'heuristic', 'timed' "
           "or\n"
           "the bytes info()['pinned'] of an earlier plan. Raises ShapeError, OutOfMemory, CudaError.")
      .def("checksum", &Plan::checksum, Unlocked(), "A number that changes when an output changes.")
      .def("info", [](const Plan &self) { return facts_of(self); })
      .def("tensors", &tensors_of, "[(name, 'input' or 'output', NumPy type, shape), ...]")
      .def(
          "device_array",
          [](std::shared_ptr<Plan> self, const std::string &tensor) {
            tensor_of(*self, tensor);
            return DeviceArray{std::move(self), tensor};
          },
          py::arg("tensor"), "A tensor where it lies, without a copy. First buffer set.")
      .def("read", &read_tensor, py::arg("tensor"), "A tensor as an array; bf16 as uint16 bits. First buffer set.")
      .def("write", &write_tensor, py::arg("tensor"), py::arg("array"),
           "Replace a tensor. First buffer set; not for ids that other plans share.");

  py::class_<DeviceArray>(m, "DeviceArray", own,
                          "A tensor on the device, for CuPy, PyTorch or Numba; bf16 as uint16 bits.")
      .def_property_readonly("__cuda_array_interface__", &DeviceArray::interface);

  py::class_<Pass, Runnable, std::shared_ptr<Pass>>(m, "Pass", own, "Plans run back to back.")
      .def(py::init<std::vector<Pass::Group>>(), py::arg("groups"),
           "groups: [([plan, ...], repeat), ...]; the plans of a group run in order, `repeat` times over.");

  m.attr("ENERGY_PROBES") = py::tuple(py::cast(probe_kinds()));
  m.def(
      "energy_probe_work",
      [](const std::string &kind, int sm_count, std::size_t l2_byte, const py::object &warps, const py::object &sms,
         const py::object &iterations, const std::string &operands, const py::object &byte) {
        const auto settings = probe_settings(kind, warps, sms, iterations, operands, byte, py::int_(1), sm_count);
        return facts_of(settings, probe_work(settings, sm_count, l2_byte));
      },
      py::arg("kind"), py::kw_only(), py::arg("sm_count"), py::arg("l2_byte"), py::arg("warps") = 32,
      py::arg("sms") = py::none(), py::arg("iterations") = 1, py::arg("operands") = "random", py::arg("byte") = 0,
      "What one launch of an EnergyProbe would do on a GPU of that size; needs no GPU. Raises ShapeError.");

  py::class_<EnergyProbe, Runnable, std::shared_ptr<EnergyProbe>>(
      m, "EnergyProbe", own, "A load of one kind (one of ENERGY_PROBES), with a known number of operations or bytes.")
      .def(py::init([](std::shared_ptr<Arena> arena, const std::string &kind, const py::object &warps,
                       const py::object &sms, const py::object &iterations, const std::string &operands,
                       const py::object &byte, const py::object &seed) {
             const auto settings =
                 probe_settings(kind, warps, sms, iterations, operands, byte, seed, arena->device()->limits.sm_count);
             const py::gil_scoped_release release;
             return std::make_shared<EnergyProbe>(std::move(arena), settings);
           }),
           py::arg("arena").none(false), py::arg("kind"), py::kw_only(), py::arg("warps") = 32,
           py::arg("sms") = py::none(), py::arg("iterations") = 1, py::arg("operands") = "random", py::arg("byte") = 0,
           py::arg("seed") = 1,
           "warps: of one block on each of `sms` multiprocessors (None: all); operands: 'random' or 'zero'; "
           "iterations:\n"
           "of its loop, passes over the working set of `byte` bytes, or cycles of a spin. Raises ShapeError,\n"
           "OutOfMemory, CudaError.")
      .def("checksum", &EnergyProbe::checksum, Unlocked(), "The same after every launch.")
      .def(
          "info", [](const EnergyProbe &self) { return facts_of(self.settings, self.work); },
          "kind, operands, warps, sms, iterations; of one launch: operations with their unit (flop, sfu_op, int32_op,\n"
          "sm_cycle), read_byte and write_byte with their level (shared, l2, dram).");

  py::class_<ClockProbe>(m, "ClockProbe", own,
                         "Mean SM clock between marks in the stream, from the GPU's own counters.")
      .def(py::init<std::shared_ptr<Device>, int>(), py::arg("device").none(false), py::arg("marks"), Unlocked())
      .def("mark", &ClockProbe::mark, Unlocked())
      .def("clear", &ClockProbe::clear)
      .def("sm_mhz", &ClockProbe::sm_mhz, Unlocked(), "One mean per stretch between successive marks.");

  py::class_<TimeMarks, Runnable, std::shared_ptr<TimeMarks>>(
      m, "TimeMarks", own, "What writes down the device's time whenever it runs: to be put between the plans of a Pass.")
      .def(py::init<std::shared_ptr<Device>, std::int64_t>(), py::arg("device").none(false), py::arg("room"), Unlocked(),
           "room: marks that are kept; later ones are not. Raises ShapeError, OutOfMemory.")
      .def("clear", &TimeMarks::clear, Unlocked(), "What is enqueued from here on writes from the first place again.")
      .def("times_ns", &TimeMarks::times_ns, Unlocked(), "Nanoseconds, those written since; waits for the stream.");

  py::class_<Stamper>(m, "Stamper", own,
                      "A kernel that stays on the GPU and writes down time, cycles and bytes read every few microseconds.")
      .def(py::init<std::shared_ptr<Device>, std::int64_t, std::int64_t, std::int64_t>(), py::arg("device").none(false),
           py::kw_only(), py::arg("step_ns"), py::arg("room"), py::arg("byte") = 0, Unlocked(),
           "room: stamps until it ends by itself; byte: memory read over and over by all multiprocessors but one, 0:\n"
           "they spin. Raises ShapeError, OutOfMemory, CudaError.")
      .def("start", &Stamper::start, Unlocked(), "Forget earlier stamps and launch the kernel.")
      .def("mark", &Stamper::mark, py::arg("number"), "Stamps carry this number from now on.")
      .def("stamps", &stamps_of, py::arg("first") = 0,
           "Those written by now, also while the kernel runs: int64, (stamps, 4): time ns, cycles, bytes read, mark.")
      .def("stop", &Stamper::stop, Unlocked(), "End the kernel and wait for its end.");

  py::class_<HeldEvent>(m, "Event", own, "A point in the stream.")
      .def(py::init<std::shared_ptr<Device>>(), py::arg("device").none(false), Unlocked())
      .def(
          "record", [](HeldEvent &self) { self.event.record(); }, Unlocked())
      .def(
          "done", [](const HeldEvent &self) { return self.event.done(); }, Unlocked())
      .def(
          "wait", [](const HeldEvent &self) { self.event.wait(); }, Unlocked())
      .def(
          "since_ms",
          [](const HeldEvent &self, const HeldEvent &earlier) { return self.event.since_ms(earlier.event); },
          py::arg("earlier"), Unlocked());
}
