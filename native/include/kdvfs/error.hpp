// What can go wrong in the native layer, one type each, one line each. Bindings turn them into Python exceptions
// of the same names.
#pragma once

#include <stdexcept>
#include <string>

namespace kdvfs {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A shape, type or setting that an operation cannot take: "<operation>: <what> is <value>, expected <what>".
struct ShapeError : Error {
  using Error::Error;
};

// No driver, one older than the runtime, no such device, or no code for its architecture.
struct DeviceError : Error {
  using Error::Error;
};

// Found before anything is allocated: says the bytes needed and the bytes free.
struct OutOfMemory : Error {
  using Error::Error;
};

// A CUDA or cuBLASLt call failed: its name, the library's text, and the operation with its shape.
struct CudaError : Error {
  using Error::Error;
};

}  // namespace kdvfs
