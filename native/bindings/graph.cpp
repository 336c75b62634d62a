// Python extension `_graph`: a captured CUDA graph, its nodes as dicts, and graphs built of them. Offers what
// kernel_dvfs.native.steady wants of `cuda`: Event, ClockProbe and device.synchronize(). Decides nothing.
#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "exceptions.hpp"
#include "graph.hpp"

namespace {

namespace py = pybind11;
using namespace kdvfs::graph;
namespace driver = kdvfs::driver;
using Unlocked = py::call_guard<py::gil_scoped_release>;

std::string demangled(const std::string &name) {
  int status = 0;
  std::unique_ptr<char, void (*)(void *)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : name;
}

py::dict dict_of(const Node &node) {
  py::dict about;
  about["type"] = node.type;
  if (node.type == driver::kernel_node) {
    const auto &kernel = node.kernel;
    about["function"] = node.function;
    about["grid"] = py::make_tuple(kernel.grid[0], kernel.grid[1], kernel.grid[2]);
    about["block"] = py::make_tuple(kernel.block[0], kernel.block[1], kernel.block[2]);
    about["cluster"] = py::make_tuple(node.cluster[0], node.cluster[1], node.cluster[2]);
    about["shared_byte"] = kernel.shared_byte;
    about["is_cooperative"] = node.is_cooperative;
    about["priority"] = node.priority;
    about["is_packed"] = node.is_packed;
    about["parameters"] = py::bytes(node.parameters);
    about["layout"] = node.layout;
  } else if (node.type == driver::memset_node) {
    const auto &memset = node.memset;
    about["target"] = memset.dst;
    about["byte"] = memset.width * memset.height * memset.element_size;
    about["value"] = memset.value;
  } else if (node.type == driver::memcpy_node) {
    const auto &copy = node.copy;
    about["source"] = copy.source.memory_type == 1 ? reinterpret_cast<driver::Pointer>(copy.source.host)
                                                   : copy.source.device;
    about["target"] = copy.target.memory_type == 1 ? reinterpret_cast<driver::Pointer>(copy.target.host)
                                                   : copy.target.device;
    about["byte"] = copy.width_byte * copy.height * copy.depth;
    about["is_host"] = copy.source.memory_type == 1 || copy.target.memory_type == 1;
    about["from_host"] = copy.source.memory_type == 1;
  }
  return about;
}

py::dict facts_of(const Device &device) {
  char name[256] = "";
  device.check(device.call.device_name(name, sizeof name, device.number), "name of the GPU");
  std::size_t memory = 0;
  device.check(device.call.device_memory(&memory, device.number), "memory of the GPU");
  int version = 0;
  device.check(device.call.version(&version), "version of the driver");
  py::dict facts;
  facts["name"] = std::string(name);
  facts["uuid"] = device.uuid();
  facts["compute_capability"] = std::to_string(device.attribute(driver::capability_major)) + "." +
                                std::to_string(device.attribute(driver::capability_minor));
  facts["sm_count"] = device.attribute(driver::multiprocessors);
  facts["l2_byte"] = device.attribute(driver::l2_byte);
  facts["memory_byte"] = memory;
  facts["driver"] = version;
  return facts;
}

}  // namespace

PYBIND11_MODULE(_graph, m, py::mod_gil_not_used()) {
  m.doc() = "Captured CUDA graphs: nodes read through the driver API, and new graphs built of them.";
  kdvfs::register_exceptions(m);
  m.def("demangled", &demangled, py::arg("name"), "A function's name as C++ writes it; itself where it is none of C++.");

  py::class_<Device, std::shared_ptr<Device>>(m, "Device", "The GPU whose CUDA context this process has.")
      .def(py::init<const std::string &>(), py::arg("library") = "libcuda.so.1")
      .def("info", &facts_of, "name, uuid, compute_capability, sm_count, l2_byte, memory_byte, driver.")
      .def("synchronize", &Device::synchronize, Unlocked(), "Wait for all that is queued.")
      .def("copy", &Device::copy, py::arg("target"), py::arg("source"), py::arg("byte"), Unlocked(),
           "Copy bytes between two addresses, of host or device, in stream order.")
      .def(
          "hashes",
          [](const Device &device, const std::vector<std::pair<driver::Pointer, std::size_t>> &ranges,
             std::size_t chunk_byte) {
            std::vector<std::uint64_t> sums;
            {
              const py::gil_scoped_release release;
              sums = device.hashes(ranges, chunk_byte);
            }
            return py::bytes(reinterpret_cast<const char *>(sums.data()), sums.size() * sizeof(std::uint64_t));
          },
          py::arg("ranges"), py::arg("chunk_byte"),
          "A hash of 8 bytes for each chunk of each range (address, byte) of device memory; waits.");

  py::class_<Event>(m, "Event")
      .def(py::init<std::shared_ptr<Device>>(), py::arg("device"))
      .def("record", &Event::record)
      .def("done", &Event::done)
      .def("wait", &Event::wait, Unlocked())
      .def("since_ms", &Event::since_ms, py::arg("earlier"));

  py::class_<ClockProbe, std::shared_ptr<ClockProbe>>(m, "ClockProbe")
      .def(py::init<std::shared_ptr<Device>, int>(), py::arg("device"), py::arg("marks"))
      .def("mark", &ClockProbe::mark)
      .def("clear", &ClockProbe::clear)
      .def("sm_mhz", &ClockProbe::sm_mhz, Unlocked());

  py::class_<TimeMarks, std::shared_ptr<TimeMarks>>(m, "TimeMarks", "The device's time, as graphs come by (Captured.timed).")
      .def(py::init<std::shared_ptr<Device>, std::int64_t>(), py::arg("device"), py::arg("room"))
      .def("clear", &TimeMarks::clear, "What is enqueued from here on writes from the first place again.")
      .def("times_ns", &TimeMarks::times_ns, Unlocked(), "Nanoseconds, those written since; waits.");

  py::class_<Loop>(m, "Loop", "An executable graph.")
      .def("run", &Loop::run, py::arg("count") = 1, Unlocked(), "Enqueue it so many times.")
      .def("time", &Loop::time, py::arg("count") = 1, Unlocked(), "ms of so many runs, waited for.");

  py::class_<Captured, std::shared_ptr<Captured>>(m, "Captured", "A captured graph. It must outlive this object.")
      .def(py::init<std::shared_ptr<Device>, std::uintptr_t>(), py::arg("device"), py::arg("handle"))
      .def("nodes",
           [](const Captured &graph) {
             py::list nodes;
             for (const Node &node : graph.nodes) {
               nodes.append(dict_of(node));
             }
             return nodes;
           },
           "A dict a node, in an order that respects the edges.")
      .def("edges",
           [](const Captured &graph) {
             py::list edges;
             for (const Edge &edge : graph.edges) {
               edges.append(py::make_tuple(edge.from, edge.to, edge.data.type == driver::programmatic_edge));
             }
             return edges;
           },
           "[(place of a node, place of one that waits for it, whether it may start before the first has ended)].")
      .def("loop", &Captured::loop, py::arg("nodes"), py::arg("repeat") = 1, py::arg("keep_edges") = false, Unlocked(),
           "A new executable graph of the nodes at these places, `repeat` times: a chain, or with their own edges.")
      .def("timed", &Captured::timed, py::arg("nodes"), py::arg("marked"), py::arg("marks").none(false), Unlocked(),
           "A chain of the nodes at these places with a mark of time before some, by number in rising order, and two at its end.")
      .def("chain", &Captured::chain, py::arg("nodes"), py::arg("repeat") = 1, py::arg("rest_ns") = 0,
           py::arg("marked") = std::vector<std::size_t>{}, py::arg("probe") = nullptr, Unlocked(),
           "A chain of the nodes at these places with a rest behind them, `repeat` times; of rests where there are none. "
           "marked: which of the list, by number in rising order, the probe marks before and after, whenever the graph runs.");
}
