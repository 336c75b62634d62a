// A kernel that stays on the GPU and writes down, every few microseconds, what its clocks have done until then: what a
// change of clocks looks like from inside, while it happens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kdvfs/memory.hpp"

namespace kdvfs {

struct Stamp {
  std::int64_t time_ns;     // of the device's own timer
  std::int64_t cycles;      // of the multiprocessor that stamps
  std::int64_t read_bytes;  // by all others, from DRAM; 0 where they only spin
  std::int64_t mark;        // the host's last, as the device saw it just before
};

struct StampControl;

// One block stamps; one on each multiprocessor keeps the GPU busy, reading `bytes` of memory over and over, or
// spinning where that is 0. Stamps lie in the host's memory, so they can be read while the kernel runs.
class Stamper {
 public:
  // step_ns: from stamp to stamp; room: stamps until it ends by itself. Throws ShapeError, OutOfMemory, CudaError.
  Stamper(std::shared_ptr<Device> device, std::int64_t step_ns, std::int64_t room, std::int64_t bytes);
  ~Stamper();
  Stamper(const Stamper &) = delete;
  Stamper &operator=(const Stamper &) = delete;

  // Forgets earlier stamps and launches the kernel.
  void start();
  // Stamps carry this number from now on: one store, which the device sees within a step and a read across the bus.
  void mark(std::int64_t number);
  // Those from the first-th on that are written by now; below 0: counted from the last.
  std::vector<Stamp> stamps(std::int64_t first) const;
  // Ends the kernel and waits for its end.
  void stop();

 private:
  const std::shared_ptr<Device> device_;
  const std::int64_t step_ns_, room_, bytes_;
  const Memory memory_;  // what is read; a counter for each block that reads; the word that ends them; their sums
  StampControl *control_ = nullptr;
  Stamp *stamps_ = nullptr;
};

}  // namespace kdvfs
