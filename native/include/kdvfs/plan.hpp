// A plan: one operation at one shape, ready to be launched for seconds. Everything that takes time or can fail for
// want of memory happens when it is made; repeating it computes the same thing again and again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kdvfs/memory.hpp"
#include "kdvfs/runnable.hpp"

namespace kdvfs {

// What a tensor is called in the arena, and what fills it; the operation's own choice where not given.
struct Binding {
  std::string shared;
  bool has_fill = false;
  Fill fill;
};

struct Options {
  std::map<std::string, Binding> tensors;
  std::string variant = "vector";
  int rotate = 1;  // sets of buffers used in turn, against residence in the cache
  std::uint64_t seed = 1;
  double zipf_exponent = -1;  // of token ids; negative = uniform
  // gemm: "heuristic" = the library's first proposal; "timed" = the fastest of its proposals on this device
  std::string algorithm = "heuristic";
  std::optional<std::string> pinned;  // gemm: what pinned() of an earlier plan gave; goes before `algorithm`
};

using Fact = std::variant<std::int64_t, double, std::string>;
using Facts = std::vector<std::pair<std::string, Fact>>;

class Plan : public Runnable {
 public:
  // Of the outputs of all buffer sets; waits for the stream.
  virtual std::uint64_t checksum() const = 0;
  // How it runs: grid, block, registers, shared memory, or the GEMM algorithm; bytes of its tensors; what one launch
  // on the first buffer set does (work.hpp).
  virtual Facts facts() const = 0;
  // Serialised GEMM algorithm, for Options::pinned; empty for other operations.
  virtual std::string pinned() const = 0;
  // Tensors of the first buffer set, in the operation's order.
  virtual const std::vector<DeviceTensor> &tensors() const = 0;
  // To and from host memory of the tensor's size, first buffer set; wait for the stream. Ids are checked, and what a
  // plan derived from them is made anew, so ids that other plans share cannot be written.
  virtual void read(const std::string &tensor, void *to) const = 0;
  virtual void write(const std::string &tensor, const void *from) = 0;
};

// Whether plans of fused attention can be made: the extension was built with cuDNN.
bool has_fused_attention();

// Throws ShapeError, OutOfMemory, CudaError.
#define KDVFS_DECLARE_PLAN(op) \
  std::unique_ptr<Plan> make_plan(std::shared_ptr<Arena> arena, const kdvfs_##op &args, const Options &options);
KDVFS_OPERATIONS(KDVFS_DECLARE_PLAN)
#undef KDVFS_DECLARE_PLAN

}  // namespace kdvfs
