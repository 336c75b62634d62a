// One GPU, its stream and its cuBLASLt handle: what every plan runs on. No global state: two devices in one process
// do not know of each other.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "kdvfs/error.hpp"
#include "kdvfs/launch.hpp"

// cublasLtHandle_t points to one; declared here, so that kernels compile without the library's header
struct cublasLtContext;

namespace kdvfs {

// Throws CudaError "<doing>: <CUDA's name>: <CUDA's text>".
void check(cudaError_t status, const std::string &doing);

// The algorithm of a matrix product that was the fastest of those timed: what pins it, its place in the library's list
// and the length of that.
struct TimedChoice {
  std::string pinned;
  int rank = 0, proposed = 0;
};

class Device {
 public:
  // Throws DeviceError: no driver, one older than the runtime, no such device, no code for its architecture.
  explicit Device(int index);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  // Makes this the calling thread's device and keeps other threads out while what it returns lives: first thing in
  // every function that enqueues, captures or allocates. One thread may enter again.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> enter() const;
  void synchronize() const;
  std::size_t free_bytes() const;
  // Between host and device, in the order of the stream; done when they return. (A plain cudaMemcpy is not in the
  // order of our stream, and from pageable memory it may still be on its way when it returns.)
  void upload(void *to, const void *from, std::size_t bytes, const std::string &doing) const;
  void download(void *to, const void *from, std::size_t bytes, const std::string &doing) const;
  std::string uuid() const;
  // Milliseconds of n device-to-device copies of `bytes` bytes each (so 2·bytes·n cross the memory interface).
  double copy_ms(std::size_t bytes, int n) const;

  const int index;
  cudaDeviceProp properties{};
  Limits limits;
  int driver = 0, runtime = 0;  // versions as CUDA counts: 13000 = 13.0
  cudaStream_t stream = nullptr;
  cublasLtContext *blas = nullptr;
  mutable std::map<std::string, TimedChoice> timed_products;  // by operation and sizes: timed once, for all plans

 private:
  void open();
  void close() noexcept;

  mutable std::recursive_mutex mutex_;
};

}  // namespace kdvfs
