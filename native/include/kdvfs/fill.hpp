// Values of a new tensor, made on the device by a counter-based generator: the same for the same seed and name,
// whatever the launch.
#pragma once

#include "kdvfs/memory.hpp"

namespace kdvfs {

// Enqueues on the device's stream (ids are made on the host and copied).
void fill(const DeviceTensor &tensor, const FillSettings &settings, const Device &device);

}  // namespace kdvfs
