#include "kdvfs/time_marks.hpp"

#include <algorithm>

#include "kdvfs/device_time.cuh"

namespace kdvfs {

namespace {

constexpr char op[] = "time marks";

std::size_t bytes_for(std::int64_t room) {
  if (room < 1) {
    refuse(op, "room", std::to_string(room), "at least 1");
  }
  return sizeof(unsigned long long) * (static_cast<std::size_t>(room) + 1);
}

}  // namespace

// One thread; launches follow each other, so nobody else counts meanwhile.
// ptx: none - two words
__global__ void time_mark_kernel(unsigned long long *marks, unsigned long long room) {
  const unsigned long long count = marks[0];
  if (count < room) {
    marks[1 + count] = global_time_ns();
    marks[0] = count + 1;
  }
}

TimeMarks::TimeMarks(std::shared_ptr<Device> device, std::int64_t room)
    : device_(std::move(device)), room_(room), memory_(*device_, bytes_for(room), op) {
  clear();
}

void TimeMarks::clear() {
  const auto turn = device_->enter();
  check(cudaMemsetAsync(memory_.data(), 0, sizeof(unsigned long long), device_->stream), op);
}

std::vector<std::int64_t> TimeMarks::times_ns() const {
  std::int64_t count = 0;
  device_->download(&count, memory_.data(), sizeof count, op);
  std::vector<std::int64_t> times(static_cast<std::size_t>(std::min(count, room_)));
  if (!times.empty()) {
    device_->download(times.data(), static_cast<const std::int64_t *>(memory_.data()) + 1,
                      times.size() * sizeof times[0], op);
  }
  return times;
}

void TimeMarks::enqueue() {
  time_mark_kernel<<<1, 1, 0, device_->stream>>>(static_cast<unsigned long long *>(memory_.data()),
                                                  static_cast<unsigned long long>(room_));
  check(cudaGetLastError(), op);
}

}  // namespace kdvfs
