// A number that changes when a tensor changes: equal before and after a window, it proves that nothing drifted.
#pragma once

#include <cstdint>
#include <vector>

#include "kdvfs/memory.hpp"

namespace kdvfs {

// Of the bits of all tensors, in order; waits for the stream.
std::uint64_t checksum(const std::vector<DeviceTensor> &tensors, const Device &device);

// What CUDA says when it looks for a kernel's code, or PTX that the driver can compile, for the current device.
cudaError_t find_code();

}  // namespace kdvfs
