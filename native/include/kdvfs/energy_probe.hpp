// Loads that use one part of the GPU, steadily and for a known number of operations or bytes: their power, measured as
// that of any other load, gives the energy of one operation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kdvfs/memory.hpp"
#include "kdvfs/runnable.hpp"

namespace kdvfs {

struct ProbeSettings {
  std::string kind;                 // one of probe_kinds()
  std::string operands = "random";  // normal bf16 values, or "zero"
  std::int64_t warps = 32;          // of the one block on each multiprocessor: fewer = less intensity
  std::int64_t sms = 1;             // multiprocessors at work
  std::int64_t iterations = 1;      // of the kernel's loop; memory: passes over the working set; spin: cycles
  std::int64_t bytes = 0;           // memory: working set, rounded up to whole iterations of all threads
  std::uint64_t seed = 1;
};

// What one launch does.
struct ProbeWork {
  std::string unit;  // of `operations`: flop (an FMA is two), sfu_op, int32_op, sm_cycle; or none
  std::int64_t operations = 0;
  std::string level;  // where the bytes come from or go to: shared, l2, dram; or none
  std::int64_t read_bytes = 0, write_bytes = 0;
  std::int64_t packs = 0;  // of 16 bytes in the working set; compute: in the operands
};

std::vector<std::string> probe_kinds();

// Throws ShapeError on settings that make no sense on a GPU with that many multiprocessors and that much cache.
ProbeWork probe_work(const ProbeSettings &settings, int sm_count, std::size_t l2_bytes);

class EnergyProbe : public Runnable {
 public:
  // Throws ShapeError, OutOfMemory, CudaError.
  EnergyProbe(std::shared_ptr<Arena> arena, const ProbeSettings &settings);

  void enqueue() override;
  // Of what it computed or wrote: the same after every launch. Waits for the stream.
  std::uint64_t checksum() const;
  const std::shared_ptr<Device> &device() const override { return arena_->device(); }
  std::string name() const override { return name_; }

  const ProbeSettings settings;
  const ProbeWork work;

 private:
  void lay_out();

  const std::shared_ptr<Arena> arena_;
  const std::string name_;
  std::vector<DeviceTensor> tensors_;  // from, sums and, where it writes, to
};

}  // namespace kdvfs
