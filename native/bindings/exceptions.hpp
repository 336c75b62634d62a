// The C++ errors of the native layer as Python exceptions, for every extension module.
#pragma once

#include <pybind11/pybind11.h>

#include "kdvfs/error.hpp"

namespace kdvfs {

// Adds Error, a kernel_dvfs_clocks.errors.InputError, and its kinds to module `m`. Local to the module: each of the
// extensions in a process raises its own.
inline void register_exceptions(pybind11::module_ &m) {
  namespace py = pybind11;
  const py::object input_error = py::module_::import("kernel_dvfs_clocks.errors").attr("InputError");
  const auto &error = py::register_local_exception<Error>(m, "Error", input_error);
  py::register_local_exception<ShapeError>(m, "ShapeError", error);
  py::register_local_exception<DeviceError>(m, "DeviceError", error);
  py::register_local_exception<OutOfMemory>(m, "OutOfMemory", error);
  py::register_local_exception<CudaError>(m, "CudaError", error);
}

}  // namespace kdvfs
