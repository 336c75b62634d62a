// The clock that the multiprocessors really ran at, measured on the device: NVML shows requested or sampled clocks.
#pragma once

#include <memory>
#include <vector>

#include "kdvfs/clock_reading.hpp"
#include "kdvfs/memory.hpp"

namespace kdvfs {

// Marks in stream order; between two of them, mean SM clock = cycles / nanoseconds on the same multiprocessor (the
// idea of nvbench's frequency gauge). Use windows of 0.1 s and more: globaltimer may tick at 1 us.
class ClockProbe {
 public:
  ClockProbe(std::shared_ptr<Device> device, int marks);
  // Enqueues one mark, a few microseconds. Throws ShapeError beyond the number of marks.
  void mark();
  void clear() { marked_ = 0; }
  // One number per stretch between successive marks, mean over the multiprocessors; waits for the stream.
  std::vector<double> sm_mhz() const;

 private:
  ClockReading *place(int mark) const {
    return static_cast<ClockReading *>(memory_.data()) + std::int64_t{mark} * blocks_;
  }

  const std::shared_ptr<Device> device_;
  const int marks_;
  int marked_ = 0;
  const int blocks_;
  const Memory memory_;
};

}  // namespace kdvfs
