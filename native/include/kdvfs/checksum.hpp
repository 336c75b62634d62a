// A number that changes when a tensor changes: equal before and after a window, it proves that nothing drifted.
#pragma once

#include <cstdint>
#include <vector>

#include "kdvfs/memory.hpp"

namespace kdvfs {

// Of the bits of all tensors, in order; waits for the stream.
std::uint64_t checksum(const std::vector<DeviceTensor> &tensors, const Device &device);

// Whether the library holds machine code, or PTX that the driver can compile, for this device.
bool has_code_for_this_device();

}  // namespace kdvfs
