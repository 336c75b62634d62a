// Python extension `_cpu`: the C reference on NumPy arrays. Checks what the C functions take for granted
// (type, shape, layout, range of ids), allocates the outputs, and computes without the GIL. Holds no arithmetic
// and knows no operation: describe.hpp does.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "arguments.hpp"
#include "exceptions.hpp"
#include "kdvfs/ref.h"
#include "kdvfs/work.hpp"

namespace {

namespace py = pybind11;
using kdvfs::Fill;
using kdvfs::refuse;
using kdvfs::Shape;

#define KDVFS_COMPUTE(op) \
  void compute(const kdvfs_##op &args) { kdvfs_ref_##op(&args); }
KDVFS_OPERATIONS(KDVFS_COMPUTE)
#undef KDVFS_COMPUTE

kdvfs_dtype element_type(const char *op, const std::string &dtype) {
  if (dtype != "bf16" && dtype != "float32") {
    refuse(op, "dtype", "'" + dtype + "'", "'bf16' or 'float32'");
  }
  return dtype == "bf16" ? KDVFS_BF16 : KDVFS_FLOAT32;
}

std::string text(const py::dtype &type, const Shape &shape) {
  return std::string(py::str(type)) + " " + kdvfs::text(shape);
}

// The array given for a tensor, if it can be read as it lies.
py::array checked(const char *op, const kdvfs::Tensor &tensor, const py::object &value) {
  const std::string expected = text(tensor.type, tensor.shape);
  const bool is_bf16 = tensor.type.equal(py::dtype::of<std::uint16_t>());
  const auto unlike = [&](const std::string &is) {
    refuse(op, tensor.name, is, expected + (is_bf16 ? " of bf16 bits" : ""));
  };
  if (!py::isinstance<py::array>(value)) {
    unlike(kdvfs::shown(value));
  }
  const auto array = py::reinterpret_borrow<py::array>(value);
  const std::string is = text(array.dtype(), Shape(array.shape(), array.shape() + array.ndim()));
  if (is != expected) {
    unlike(is);
  }
  // no silent copy: a caller who hands in a view should know that it is not what will be read
  const int flags = array.flags();
  if (!(flags & py::array::c_style) || !(flags & py::detail::npy_api::NPY_ARRAY_ALIGNED_)) {
    refuse(op, tensor.name, is + " but strided or unaligned", "a C-contiguous, aligned array");
  }
  return array;
}

// A new array for an output, of zeros, or of what is given: so it can be seen what a call leaves alone.
py::array output(const char *op, const kdvfs::Tensor &tensor, const py::dict &given) {
  py::array array(tensor.type, std::vector<py::ssize_t>(tensor.shape.begin(), tensor.shape.end()));
  const auto bytes = static_cast<std::size_t>(array.nbytes());
  if (given.contains(tensor.name)) {
    std::memcpy(array.mutable_data(), checked(op, tensor, given[tensor.name.c_str()]).data(), bytes);
  } else {
    std::memset(array.mutable_data(), 0, bytes);
  }
  return array;
}

// Points the arguments at the arrays of those names, a visitor of Operation<Args>::tensors.
struct Pointers {
  const char *op;
  const py::dict &inputs;
  py::dict &outputs;

  template <typename T>
  void input(const char *name, const T *&pointer, const Shape &, const Fill &fill) const {
    const auto array = py::reinterpret_borrow<py::array>(inputs[name]);
    pointer = static_cast<const T *>(array.data());
    if constexpr (std::is_same_v<T, std::int32_t>) {
      hold_in_range(name, pointer, array.size(), fill.vocabulary);
    }
  }

  template <typename T>
  void output(const char *name, T *&pointer, const Shape &) const {
    pointer = static_cast<T *>(py::reinterpret_borrow<py::array>(outputs[name]).mutable_data());
  }

 private:
  void hold_in_range(const char *name, const std::int32_t *ids, py::ssize_t count, std::int64_t vocabulary) const {
    for (py::ssize_t m = 0; m < count; m++) {
      if (ids[m] < 0 || ids[m] >= vocabulary) {
        refuse(op, std::string(name) + "[" + std::to_string(m) + "]", std::to_string(ids[m]),
               "0 to " + std::to_string(vocabulary - 1));
      }
    }
  }
};

py::list tensors(const std::string &op, const py::dict &settings, const std::string &dtype) {
  return kdvfs::with_operation(op, [&](auto args) {
    using Op = kdvfs::Operation<decltype(args)>;
    args = kdvfs::read_settings<decltype(args)>(settings);
    args.dtype = element_type(Op::name, dtype);
    return kdvfs::as_list(kdvfs::list_tensors(args));
  });
}

// How many different ids an operation that looks up tokens is given; 0 for others.
std::int64_t distinct_ids(const char *op, const std::vector<kdvfs::Tensor> &described, const py::dict &given) {
  for (const kdvfs::Tensor &tensor : described) {
    if (tensor.name == "ids") {
      const py::array array = checked(op, tensor, kdvfs::find(op, "tensor", given, tensor.name, {tensor.name}));
      return kdvfs::distinct_ids(static_cast<const std::int32_t *>(array.data()), array.size());
    }
  }
  return 0;
}

py::dict work(const std::string &op, const py::dict &settings, const py::dict &given, const std::string &dtype) {
  return kdvfs::with_operation(op, [&](auto args) {
    using Op = kdvfs::Operation<decltype(args)>;
    args = kdvfs::read_settings<decltype(args)>(settings);
    args.dtype = element_type(Op::name, dtype);
    const kdvfs::Work counted = kdvfs::work_of(args, distinct_ids(Op::name, kdvfs::list_tensors(args), given));
    py::dict result;
    for (const auto &[name, value] : kdvfs::named(counted)) {
      result[name] = value;
    }
    return result;
  });
}

py::dict run(const std::string &op, const py::dict &settings, const py::dict &given, const std::string &dtype) {
  return kdvfs::with_operation(op, [&](auto args) {
    using Op = kdvfs::Operation<decltype(args)>;
    args = kdvfs::read_settings<decltype(args)>(settings);
    args.dtype = element_type(Op::name, dtype);
    const std::vector<kdvfs::Tensor> described = kdvfs::list_tensors(args);
    const kdvfs::Names names = kdvfs::names_of(described);
    kdvfs::refuse_unknown(Op::name, "tensor", given, names);
    py::dict inputs, outputs;
    for (const kdvfs::Tensor &tensor : described) {
      const py::str name(tensor.name);
      if (tensor.is_output) {
        outputs[name] = output(Op::name, tensor, given);
      } else {
        inputs[name] = checked(Op::name, tensor, kdvfs::find(Op::name, "tensor", given, tensor.name, names));
      }
    }
    Op::tensors(Pointers{Op::name, inputs, outputs}, args);
    {
      const py::gil_scoped_release release;
      compute(args);
    }
    return outputs;
  });
}

}  // namespace

PYBIND11_MODULE(_cpu, m, py::mod_gil_not_used()) {
  m.doc() = "C reference of the kernels (native/include/kdvfs/kernels.h) on NumPy arrays.";
  kdvfs::register_exceptions(m);
  m.attr("OPERATIONS") = py::tuple(py::cast(kdvfs::operation_names()));
  m.def("tensors", &tensors, py::arg("op"), py::arg("settings"), py::arg("dtype") = "bf16",
        "What an operation reads and writes: [(name, 'input' or 'output', NumPy type, shape), ...].\n"
        "settings: its sizes and settings by name, all of them; dtype: 'bf16' or 'float32'.");
  m.def("work", &work, py::arg("op"), py::arg("settings"), py::arg("tensors") = py::dict(), py::arg("dtype") = "bf16",
        "What one launch does, counted from its sizes and tensors (native/include/kdvfs/work.hpp): flop, of it\n"
        "tensor_flop; sfu_op; read_byte and write_byte of the operation, spare_read_byte and spare_write_byte beside\n"
        "them; resident_byte of buffers. tensors: `ids`, where tokens are looked up; no other is looked at.");
  m.def("run", &run, py::arg("op"), py::arg("settings"), py::arg("tensors"), py::arg("dtype") = "bf16",
        "Compute an operation of the arrays `tensors`; return its outputs by name, in new arrays.\n"
        "bf16 tensors are uint16 arrays of their bits. An output that is among `tensors` starts as that, else as\n"
        "zeros: not every operation writes all of its outputs. Raises ShapeError for what does not fit.");
}
