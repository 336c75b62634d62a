// From Python to the argument structs of kernels.h, for every extension module: an operation by its name, its
// settings from a dict, its tensors by name. All of it follows describe.hpp; nothing here knows an operation.
// Whatever does not fit raises ShapeError, one line. `dtype` is no setting: the caller sets it.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "kdvfs/describe.hpp"

namespace kdvfs {

namespace py = pybind11;

using Names = std::vector<std::string>;

inline std::string listed(const Names &names) {
  std::string out;
  for (const std::string &name : names) {
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

inline Names operation_names() {
  return {
#define KDVFS_NAME(op) #op,
      KDVFS_OPERATIONS(KDVFS_NAME)
#undef KDVFS_NAME
  };
}

// f(kdvfs_<op>{}), with the empty argument struct of the operation of that name
template <typename F>
auto with_operation(const std::string &op, F &&f) {
#define KDVFS_CALL(name)      \
  if (op == #name) {          \
    return f(kdvfs_##name{}); \
  }
  KDVFS_OPERATIONS(KDVFS_CALL)
#undef KDVFS_CALL
  throw ShapeError("operation is '" + op + "', expected " + listed(operation_names()));
}

// a Python value for a message: on one line, cut short, and ASCII, which can be cut anywhere
inline std::string shown(const py::handle value) {
  constexpr std::size_t longest = 60;
  const auto ascii = py::reinterpret_steal<py::object>(PyObject_ASCII(value.ptr()));
  if (!ascii) {
    throw py::error_already_set();
  }
  std::string whole = ascii.cast<std::string>();
  std::replace(whole.begin(), whole.end(), '\n', ' ');
  return whole.size() <= longest ? whole : whole.substr(0, longest) + "...";
}

// `kind`: what the keys of `given` name
inline void refuse_unknown(const char *op, const char *kind, const py::dict &given, const Names &known) {
  for (const auto &[key, value] : given) {
    if (!py::isinstance<py::str>(key) || std::count(known.begin(), known.end(), std::string(py::str(key))) == 0) {
      refuse(op, std::string(kind) + " " + shown(key), "unknown", listed(known));
    }
  }
}

// the value of a key that has to be there
inline py::object find(const char *op, const char *kind, const py::dict &given, const std::string &name,
                       const Names &known) {
  if (!given.contains(name)) {
    refuse(op, std::string(kind) + " '" + name + "'", "missing", listed(known));
  }
  return given[py::str(name)];
}

namespace detail {

struct SettingNames {
  Names names;
  template <typename T>
  void operator()(const char *name, const T &) {
    names.emplace_back(name);
  }
};

// an int of Python or of NumPy; a bool is none
inline std::optional<std::int64_t> integer(const py::handle value) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) {
    return std::nullopt;
  }
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  int overflow = 0;
  const long long whole = index ? PyLong_AsLongLongAndOverflow(index.ptr(), &overflow) : 0;
  PyErr_Clear();  // of an index that failed
  return index && overflow == 0 ? std::optional<std::int64_t>(whole) : std::nullopt;
}

inline std::optional<double> number(const py::handle value) {
  if (PyBool_Check(value.ptr()) || !py::hasattr(value, "__float__")) {
    return std::nullopt;
  }
  const double real = PyFloat_AsDouble(value.ptr());
  const bool failed = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  return failed ? std::nullopt : std::optional<double>(real);
}

// What a setting may be follows from the type of its member.
class SettingReader {
 public:
  SettingReader(const char *op, const py::dict &given, const Names &known) : op_(op), given_(given), known_(known) {}

  void operator()(const char *name, std::int64_t &size) const {
    size = integer(name, 1, std::numeric_limits<std::int64_t>::max(), "an int >= 1");
  }

  void operator()(const char *name, std::uint32_t &seed) const {
    const std::int64_t largest = std::numeric_limits<std::uint32_t>::max();
    seed = static_cast<std::uint32_t>(integer(name, 0, largest, "an int from 0 to 2^32 - 1"));
  }

  void operator()(const char *name, std::int32_t &flag) const {
    const py::object value = find(op_, "setting", given_, name, known_);
    if (py::isinstance<py::bool_>(value)) {
      flag = value.cast<bool>();
    } else {
      flag = static_cast<std::int32_t>(integer(name, 0, 1, "a bool, 0 or 1"));
    }
  }

  void operator()(const char *name, float &number) const {
    const py::object value = find(op_, "setting", given_, name, known_);
    const std::optional<double> real = detail::number(value);
    if (!real) {
      refuse(op_, name, shown(value), "a number");
    }
    number = static_cast<float>(*real);
  }

  void operator()(const char *name, kdvfs_layout &layout) const {
    const py::object value = find(op_, "setting", given_, name, known_);
    const std::string text = py::isinstance<py::str>(value) ? value.cast<std::string>() : "";
    if (text == "TN") {
      layout = KDVFS_TN;
    } else if (text == "NN") {
      layout = KDVFS_NN;
    } else if (text == "NT") {
      layout = KDVFS_NT;
    } else {
      refuse(op_, name, shown(value), "'TN', 'NN' or 'NT'");
    }
  }

 private:
  std::int64_t integer(const char *name, std::int64_t smallest, std::int64_t largest, const char *expected) const {
    const py::object value = find(op_, "setting", given_, name, known_);
    const std::optional<std::int64_t> whole = detail::integer(value);
    if (!whole || *whole < smallest || *whole > largest) {
      refuse(op_, name, shown(value), expected);
    }
    return *whole;
  }

  const char *op_;
  const py::dict &given_;
  const Names &known_;
};

}  // namespace detail

// The NumPy type of what a tensor's pointer T * points to; bf16 is uint16, its bits.
template <typename T>
py::dtype numpy_type(kdvfs_dtype dtype) {
  if constexpr (!std::is_void_v<T>) {
    return py::dtype::of<std::remove_const_t<T>>();
  } else {
    return dtype == KDVFS_BF16 ? py::dtype::of<std::uint16_t>() : py::dtype::of<float>();
  }
}

struct Tensor {
  std::string name;
  bool is_output;
  py::dtype type;
  Shape shape;
};

namespace detail {

struct TensorLister {
  kdvfs_dtype dtype;
  std::vector<Tensor> tensors;
  template <typename T>
  void input(const char *name, const T *, const Shape &shape, const Fill &) {
    tensors.push_back({name, false, numpy_type<T>(dtype), shape});
  }
  template <typename T>
  void output(const char *name, const T *, const Shape &shape) {
    tensors.push_back({name, true, numpy_type<T>(dtype), shape});
  }
};

// With this few elements no index and no count of bytes overflows.
inline void refuse_overflow(const char *op, const Tensor &tensor) {
  std::int64_t left = INT64_C(1) << 60;
  for (const std::int64_t length : tensor.shape) {
    left /= length;
  }
  if (left == 0) {
    refuse(op, tensor.name, text(tensor.shape), "at most 2^60 elements");
  }
}

}  // namespace detail

// The tensors of an operation with these settings, in the order of describe.hpp.
template <typename Args>
std::vector<Tensor> list_tensors(const Args &args) {
  detail::TensorLister lister{args.dtype, {}};
  Operation<Args>::tensors(lister, args);
  return lister.tensors;
}

inline Names names_of(const std::vector<Tensor> &tensors) {
  Names names;
  for (const Tensor &tensor : tensors) {
    names.push_back(tensor.name);
  }
  return names;
}

// [(name, "input" or "output", NumPy type as text, shape), ...]
inline py::list as_list(const std::vector<Tensor> &tensors) {
  py::list list;
  for (const Tensor &tensor : tensors) {
    const char *kind = tensor.is_output ? "output" : "input";
    list.append(py::make_tuple(tensor.name, kind, py::str(tensor.type), py::tuple(py::cast(tensor.shape))));
  }
  return list;
}

// Every setting is required: a measurement should depend on nothing that its record does not name.
template <typename Args>
Args read_settings(const py::dict &settings) {
  using Op = Operation<Args>;
  Args args{};
  detail::SettingNames known;
  Op::settings(known, args);
  refuse_unknown(Op::name, "setting", settings, known.names);
  Op::settings(detail::SettingReader(Op::name, settings, known.names), args);
  Op::check(args);
  for (const Tensor &tensor : list_tensors(args)) {
    detail::refuse_overflow(Op::name, tensor);
  }
  return args;
}

}  // namespace kdvfs
