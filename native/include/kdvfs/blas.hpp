// cuBLASLt, and what its failures become.
#pragma once

#include <cublasLt.h>

#include <string>

#include "kdvfs/error.hpp"

namespace kdvfs {

// Throws CudaError "<doing>: <cuBLASLt's name>: <its text>".
inline void check(cublasStatus_t status, const std::string &doing) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CudaError(doing + ": " + cublasLtGetStatusName(status) + ": " + cublasLtGetStatusString(status));
  }
}

}  // namespace kdvfs
