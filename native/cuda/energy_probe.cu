// Each kernel keeps one unit busy and does as little else as it can. One block on each multiprocessor; its number of
// warps sets the intensity, since every loop is a chain of dependent steps (or, for memory, a fixed number of loads in
// flight per thread). Operands are normal bf16 values and never settle: what toggles is what costs energy.
#include "kdvfs/energy_probe.hpp"

#include <algorithm>

#include "kdvfs/checksum.hpp"
#include "kdvfs/pack.cuh"

namespace kdvfs {

// Of every kernel below; one launch parameter.
struct ProbeArgs {
  const uint4 *from;
  uint4 *to;
  std::uint32_t *sums;  // one a thread: what is computed is used
  std::int64_t iterations, packs;
  std::uint32_t sign;  // of both bf16 of a word; 0 for operands that stay zero
};

namespace {

constexpr int largest_block = 1024;
constexpr int unrolled = 16;      // steps of a compute loop
constexpr int in_flight = 4;      // 16-byte accesses of one thread
constexpr int operand_packs = 6;  // of one thread: fragments of the tensor cores, the largest
constexpr int shared_packs = 2 * largest_block;
constexpr int fragments = 4;  // of each factor
constexpr int flop_per_mma = 2 * 16 * 8 * 16;
constexpr std::int64_t most_iterations = 1'000'000'000;
constexpr std::size_t far_above_cache = 16;  // working set of a DRAM probe over the size of the L2 cache

__device__ __forceinline__ std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ uint4 operands_of_thread(const ProbeArgs &args, int which) {
  return args.from[thread_index() * operand_packs + which];
}

// Every word counts: of a load whose words are not all used, the assembler makes a narrower one.
__device__ __forceinline__ std::uint32_t folded(const uint4 &value) { return value.x ^ value.y ^ value.z ^ value.w; }

// volatile: not moved out of the loop
__device__ __forceinline__ uint4 read_shared(std::uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}

// past the L1 cache
__device__ __forceinline__ uint4 read_l2(const uint4 *address) {
  uint4 value;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

__device__ __forceinline__ float two_to_the(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float log2_of(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const uint4 &a, const uint2 &b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

}  // namespace

// A harmonic oscillator by leapfrog steps of two FMAs: bounded for ever, and no two states have the same mantissa.
// ptx: ld.v4
__global__ void __launch_bounds__(largest_block) fp32_probe_kernel(const ProbeArgs args) {
  const uint4 start = operands_of_thread(args, 0);
  float x = low_half(start.x), v = high_half(start.x);
  // of each thread its own, far from 0 and 2, and in a register as the factors of real work are
  float step = 0.6f + 0.1f * __sinf(low_half(start.y));
  asm("" : "+f"(step));
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
#pragma unroll
    for (int k = 0; k < unrolled; k++) {
      x = __fmaf_rn(v, step, x);
      v = __fmaf_rn(x, -step, v);
    }
  }
  args.sums[thread_index()] = __float_as_uint(x) ^ __float_as_uint(v);
}

// x -> 2^x -> x: two special functions a step.
// ptx: none
__global__ void __launch_bounds__(largest_block) sfu_probe_kernel(const ProbeArgs args) {
  float x = low_half(operands_of_thread(args, 0).x);
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
#pragma unroll
    for (int k = 0; k < unrolled; k++) {
      x = log2_of(two_to_the(x));
    }
  }
  args.sums[thread_index()] = __float_as_uint(x);
}

// Exclusive or and sum in turn: four integer operations a step.
// ptx: ld.v4
__global__ void __launch_bounds__(largest_block) int32_probe_kernel(const ProbeArgs args) {
  const uint4 start = operands_of_thread(args, 0);
  std::uint32_t x = start.x, y = start.y;
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
#pragma unroll
    for (int k = 0; k < unrolled; k++) {
      x = (x ^ y) + start.z;
      y = (y ^ x) + start.w;
    }
  }
  args.sums[thread_index()] = x ^ y;
}

// Whole rows of banks, no conflicts.
// ptx: ld.v4
__global__ void __launch_bounds__(largest_block) shared_probe_kernel(const ProbeArgs args) {
  __shared__ uint4 rows[shared_packs];
  for (int i = threadIdx.x; i < shared_packs; i += blockDim.x) {
    rows[i] = args.from[i];
  }
  __syncthreads();
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(rows));
  std::uint32_t row = threadIdx.x, sum = 0;
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
#pragma unroll
    for (int k = 0; k < in_flight; k++) {
      sum ^= folded(read_shared(base + static_cast<std::uint32_t>(sizeof(uint4)) * (row + 64u * k)));
    }
    row ^= 64u;  // stays below the largest block
  }
  args.sums[thread_index()] = sum;
}

// Every pass hands the blocks to other multiprocessors; the L1 cache is passed by.
// ptx: ld.v4
__global__ void __launch_bounds__(largest_block) read_probe_kernel(const ProbeArgs args) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::uint32_t sum = 0;
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
    const std::int64_t first = (blockIdx.x + i) % gridDim.x * blockDim.x + threadIdx.x;
    for (std::int64_t pack = first; pack < args.packs; pack += in_flight * threads) {
      uint4 values[in_flight];
#pragma unroll
      for (int k = 0; k < in_flight; k++) {
        values[k] = read_l2(args.from + pack + k * threads);
      }
#pragma unroll
      for (int k = 0; k < in_flight; k++) {
        sum ^= folded(values[k]);
      }
    }
  }
  args.sums[thread_index()] = sum;
}

// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(largest_block) write_probe_kernel(const ProbeArgs args) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const uint4 value = operands_of_thread(args, 0);
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
    for (std::int64_t pack = thread_index(); pack < args.packs; pack += in_flight * threads) {
#pragma unroll
      for (int k = 0; k < in_flight; k++) {
        __stcs(args.to + pack + k * threads, value);
      }
    }
  }
  args.sums[thread_index()] = value.x;
}

// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(largest_block) copy_probe_kernel(const ProbeArgs args) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
    for (std::int64_t pack = thread_index(); pack < args.packs; pack += in_flight * threads) {
      uint4 values[in_flight];
#pragma unroll
      for (int k = 0; k < in_flight; k++) {
        values[k] = read_l2(args.from + pack + k * threads);
      }
#pragma unroll
      for (int k = 0; k < in_flight; k++) {
        __stcs(args.to + pack + k * threads, values[k]);
      }
    }
  }
  args.sums[thread_index()] = 1;
}

// All pairs of four fragments of each factor, four accumulators in turn. One factor changes its sign from one
// iteration to the next: both operands change with every product, and the accumulators stay small.
// ptx: ld.v4
__global__ void __launch_bounds__(largest_block) tensor_probe_kernel(const ProbeArgs args) {
  static_assert(fragments + fragments / 2 == operand_packs, "fragments of both factors");
  uint4 a[fragments];
  uint2 b[fragments];
#pragma unroll
  for (int k = 0; k < fragments; k++) {
    a[k] = operands_of_thread(args, k);
  }
#pragma unroll
  for (int k = 0; k < fragments / 2; k++) {
    const uint4 two = operands_of_thread(args, fragments + k);
    b[2 * k] = {two.x, two.y};
    b[2 * k + 1] = {two.z, two.w};
  }
  float c[fragments][4] = {};
#pragma unroll 1
  for (std::int64_t i = 0; i < args.iterations; i++) {
#pragma unroll
    for (int k = 0; k < fragments * fragments; k++) {
      multiply_add(c[k % fragments], a[k % fragments], b[(k + k / fragments) % fragments]);
    }
#pragma unroll
    for (int k = 0; k < fragments; k++) {
      b[k].x ^= args.sign;
      b[k].y ^= args.sign;
    }
  }
  std::uint32_t sum = 0;
#pragma unroll
  for (int k = 0; k < fragments; k++) {
#pragma unroll
    for (int part = 0; part < 4; part++) {
      sum ^= __float_as_uint(c[k][part]);
    }
  }
  args.sums[thread_index()] = sum;
}

// Awake and clocked, and nothing else.
// ptx: none
__global__ void __launch_bounds__(largest_block) spin_probe_kernel(const ProbeArgs args) {
  const long long start = clock64();
  while (clock64() - start < args.iterations) {
  }
  args.sums[thread_index()] = 1;
}

namespace {

// What a kind is: its kernel, and what one thread does in one iteration of its loop.
struct Kind {
  const char *name;
  void (*kernel)(ProbeArgs);
  const char *unit;
  int operations;
  const char *level;
  bool reads, writes;
};

constexpr Kind kinds[] = {
    {"fp32", fp32_probe_kernel, "flop", 4 * unrolled, "", false, false},
    {"sfu", sfu_probe_kernel, "sfu_op", 2 * unrolled, "", false, false},
    {"int32", int32_probe_kernel, "int32_op", 4 * unrolled, "", false, false},
    {"shared", shared_probe_kernel, "", 0, "shared", true, false},
    {"l2_read", read_probe_kernel, "", 0, "l2", true, false},
    {"dram_read", read_probe_kernel, "", 0, "dram", true, false},
    {"dram_write", write_probe_kernel, "", 0, "dram", false, true},
    {"dram_copy", copy_probe_kernel, "", 0, "dram", true, true},
    // a warp's product, shared out to its threads
    {"tensor", tensor_probe_kernel, "flop", fragments * fragments * flop_per_mma / 32, "", false, false},
    {"spin", spin_probe_kernel, "sm_cycle", 1, "", false, false},
};

constexpr char op[] = "energy probe";

const Kind &kind_of(const std::string &name) {
  std::string known;
  for (const Kind &kind : kinds) {
    if (name == kind.name) {
      return kind;
    }
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  refuse(op, "kind", "'" + name + "'", "one of " + known);
}

void require_range(const char *name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    refuse(op, name, std::to_string(value), std::to_string(least) + " to " + std::to_string(most));
  }
}

bool has_working_set(const Kind &kind) { return kind.level == std::string("l2") || kind.level == std::string("dram"); }

void require_working_set(const Kind &kind, std::int64_t bytes, std::size_t l2_bytes) {
  const auto cache = static_cast<std::int64_t>(l2_bytes);
  if (!has_working_set(kind)) {
    if (bytes != 0) {
      refuse(op, "byte", std::to_string(bytes), std::string("0: a ") + kind.name + " probe has no working set");
    }
  } else if (kind.level == std::string("l2")) {
    require_range("byte", bytes, 1, cache);
  } else {
    require_range("byte", bytes, std::int64_t{far_above_cache} * cache, std::int64_t{1} << 40);
  }
}

std::string named(const ProbeSettings &settings) {
  std::string text = "energy probe " + settings.kind + "(warps=" + std::to_string(settings.warps) +
                     ", sms=" + std::to_string(settings.sms) + ", iterations=" + std::to_string(settings.iterations);
  return text + (settings.bytes ? ", byte=" + std::to_string(settings.bytes) : "") + ", " + settings.operands + ")";
}

}  // namespace

std::vector<std::string> probe_kinds() {
  std::vector<std::string> names;
  for (const Kind &kind : kinds) {
    names.emplace_back(kind.name);
  }
  return names;
}

ProbeWork probe_work(const ProbeSettings &settings, int sm_count, std::size_t l2_bytes) {
  const Kind &kind = kind_of(settings.kind);
  if (settings.operands != "random" && settings.operands != "zero") {
    refuse(op, "operands", "'" + settings.operands + "'", "random or zero");
  }
  require_range("warps", settings.warps, 1, largest_block / 32);
  require_range("sms", settings.sms, 1, sm_count);
  require_range("iterations", settings.iterations, 1, most_iterations);
  require_working_set(kind, settings.bytes, l2_bytes);

  const std::int64_t threads = 32 * settings.warps * settings.sms, pack_bytes = sizeof(uint4);
  ProbeWork work{kind.unit, settings.iterations * threads * kind.operations, kind.level, 0, 0, 0};
  if (kind.kernel == spin_probe_kernel) {
    work.operations = settings.iterations * settings.sms;  // however many warps wait
  }
  work.packs = std::max(operand_packs * threads, std::int64_t{shared_packs});
  std::int64_t bytes = settings.iterations * threads * in_flight * pack_bytes;
  if (has_working_set(kind)) {
    const std::int64_t step = in_flight * threads;
    work.packs = (settings.bytes + step * pack_bytes - 1) / (step * pack_bytes) * step;
    bytes = settings.iterations * work.packs * pack_bytes;
  }
  work.read_bytes = kind.reads ? bytes : 0;
  work.write_bytes = kind.writes ? bytes : 0;
  return work;
}

EnergyProbe::EnergyProbe(std::shared_ptr<Arena> arena, const ProbeSettings &given)
    : settings(given),
      work(probe_work(given, arena->device()->limits.sm_count, arena->device()->limits.l2_bytes)),
      arena_(std::move(arena)),
      name_(named(given)) {
  lay_out();
}

void EnergyProbe::lay_out() {
  const std::int64_t threads = 32 * settings.warps * settings.sms;
  const Fill values = settings.operands == "zero" ? Fill::none() : Fill::activation();
  const Shape working_set{Pack::size * work.packs};
  const Shape operands{Pack::size * operand_packs * threads};
  std::vector<Request> requests{
      {"from", "", Element::bf16, work.write_bytes && !work.read_bytes ? operands : working_set, values, false, 0},
      {"sums", "", Element::int32, {threads}, Fill::none(), true, 0}};
  if (work.write_bytes) {
    requests.push_back({"to", "", Element::bf16, working_set, Fill::none(), true, 0});
  }
  const auto turn = device()->enter();
  tensors_ = arena_->take(requests, {settings.seed, -1}, name_);
}

void EnergyProbe::enqueue() {
  ProbeArgs args{static_cast<const uint4 *>(tensors_[0].data),
                 work.write_bytes ? static_cast<uint4 *>(tensors_[2].data) : nullptr,
                 static_cast<std::uint32_t *>(tensors_[1].data),
                 settings.iterations,
                 work.packs,
                 settings.operands == "zero" ? 0 : 0x80008000u};
  kind_of(settings.kind)
      .kernel<<<static_cast<unsigned>(settings.sms), static_cast<unsigned>(32 * settings.warps), 0, device()->stream>>>(
          args);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
    check(status, name_);
  }
}

std::uint64_t EnergyProbe::checksum() const {
  std::vector<DeviceTensor> outputs(tensors_.begin() + 1, tensors_.end());
  return kdvfs::checksum(outputs, *device());
}

}  // namespace kdvfs
