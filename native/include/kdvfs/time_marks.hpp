// When the GPU came by: marks between the plans of a pass, which tell the time of each of its launches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kdvfs/memory.hpp"
#include "kdvfs/runnable.hpp"

namespace kdvfs {

// Something to enqueue between plans, also in a Pass and its Graph, as often as wanted. Each time it runs, it writes
// down the device's time, in stream order; beyond the number of marks that there is room for it writes nothing.
class TimeMarks : public Runnable {
 public:
  // Throws ShapeError, OutOfMemory.
  TimeMarks(std::shared_ptr<Device> device, std::int64_t room);

  // From here on in stream order, marks are written from the first place again.
  void clear();
  // Nanoseconds, those written since; may move in steps of 1 us. Waits for the stream.
  std::vector<std::int64_t> times_ns() const;

  void enqueue() override;
  const std::shared_ptr<Device> &device() const override { return device_; }
  std::string name() const override { return "time marks"; }

 private:
  const std::shared_ptr<Device> device_;
  const std::int64_t room_;
  const Memory memory_;  // how many were written, then their times
};

}  // namespace kdvfs
