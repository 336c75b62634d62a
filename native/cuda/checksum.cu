#include "kdvfs/checksum.hpp"

#include "kdvfs/launch.hpp"

namespace kdvfs {

// A sum of hashed (bits, position): integers add up to the same number in any order.
// ptx: none b16 - not part of a measurement
__global__ void checksum_kernel(const std::uint16_t *words, std::int64_t size, std::uint64_t first,
                                unsigned long long *sum) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  unsigned long long mine = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += step) {
    std::uint64_t x = (first + static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15ull + words[i];
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
    mine += x ^ (x >> 32);
  }
  atomicAdd(sum, mine);
}

cudaError_t find_code() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(&checksum_kernel));
  cudaGetLastError();  // reported here, not by the next check
  return status;
}

std::uint64_t checksum(const std::vector<DeviceTensor> &tensors, const Device &device) {
  const auto turn = device.enter();
  const std::string doing = "checksum";
  const Memory result(device, sizeof(unsigned long long), doing);
  auto *sum = static_cast<unsigned long long *>(result.data());
  check(cudaMemsetAsync(sum, 0, sizeof *sum, device.stream), doing);
  std::uint64_t first = 0;
  for (const DeviceTensor &tensor : tensors) {
    const std::int64_t words = static_cast<std::int64_t>(tensor.bytes() / 2);
    checksum_kernel<<<8 * device.limits.sm_count, 256, 0, device.stream>>>(
        static_cast<const std::uint16_t *>(tensor.data), words, first, sum);
    first += static_cast<std::uint64_t>(words);
  }
  check(cudaGetLastError(), doing);
  unsigned long long value = 0;
  device.download(&value, sum, sizeof value, doing);
  return value;
}

}  // namespace kdvfs
