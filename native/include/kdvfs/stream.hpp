// Events on a device's stream: when did the GPU get here, and how long did it take.
#pragma once

#include <cuda_runtime.h>

#include "kdvfs/device.hpp"

namespace kdvfs {

class Event {
 public:
  explicit Event(const Device &device) : device_(device) {
    const auto turn = device_.enter();
    check(cudaEventCreate(&event_), "event");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  void record() {
    const auto turn = device_.enter();
    check(cudaEventRecord(event_, device_.stream), "event");
  }

  bool done() const {
    const auto turn = device_.enter();
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // not an error, but it would be found by the next check
      return false;
    }
    check(status, "running kernels");
    return true;
  }

  void wait() const {
    device_.enter().unlock();  // waiting keeps nobody out
    check(cudaEventSynchronize(event_), "running kernels");
  }

  // GPU time from `earlier` to this, both done; resolution about 0.5 us.
  double since_ms(const Event &earlier) const {
    const auto turn = device_.enter();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, earlier.event_, event_), "event");
    return ms;
  }

 private:
  const Device &device_;
  cudaEvent_t event_ = nullptr;
};

class Stopwatch {
 public:
  explicit Stopwatch(const Device &device) : start_(device), stop_(device) {}
  void start() { start_.record(); }
  double stop_ms() {
    stop_.record();
    stop_.wait();
    return stop_.since_ms(start_);
  }

 private:
  Event start_, stop_;
};

}  // namespace kdvfs
