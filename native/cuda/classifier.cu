// Softmax over the vocabulary, cross-entropy and its gradient; a block takes one row of logits after the other. A row
// is read once: it comes through shared memory while the row before it is worked on, then lies in registers for its
// maximum, its sum and its gradient. Rows too long for that are read again, from L2.
#include <algorithm>
#include <cfloat>

#include "kdvfs/address.cuh"
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/reduce.cuh"
#include "kdvfs/softmax.cuh"
#include "kdvfs/staging.cuh"
#include "kdvfs/tail.cuh"

namespace kdvfs {

namespace {

constexpr int block_threads = 1024, block_warps = block_threads / 32;
constexpr int packs_per_thread = 8;

__device__ __forceinline__ std::int64_t start_of(const kdvfs_classifier &args, int row) { return row * args.Vp; }

// Packs of a row, the last one perhaps partly beyond V.
__host__ __device__ constexpr int packs_of(int V) { return (V + Pack::size - 1) / Pack::size; }

// Takes the pad columns out of a row's last pack: they count for nothing.
__device__ __forceinline__ void cut_last(Pack &pack, int V) {
  keep_first(pack, (V - 1) % Pack::size + 1, minus_infinities);
}

// The target's column is its own thread's business: the one that writes the gradient there.
__device__ __forceinline__ bool is_mine(int column) {
  return column / Pack::size % block_threads == static_cast<int>(threadIdx.x);
}

// dloss * p of a pack that begins `left` columns before V: the power of 2 of log2_e * logit + offset.
__device__ __forceinline__ void write_gradient(void *to, std::int64_t element, int left, const Pack &pack,
                                               float offset) {
  float values[Pack::size];
  unpack(pack, values);
#pragma unroll
  for (float &value : values) {
    value = exp2f(value * log2_e + offset);
  }
  if (left >= Pack::size) {
    store_streaming(to, element, pack_of(values));
  } else {
#pragma unroll
    for (int j = 0; j < Pack::size; j++) {
      if (j < left) {
        store_one(to, element + j, values[j]);
      }
    }
  }
}

// After write_gradient of the same thread, which did not know of the target.
__device__ __forceinline__ void write_target(const kdvfs_classifier &args, int row, int column, float logit,
                                             float log2_total) {
  const float log2_p = logit * log2_e - log2_total;
  store_one(args.dlogits, start_of(args, row) + column, args.dloss * (exp2f(log2_p) - 1.0f));
  args.losses_out[row] = args.losses_in[row] - log2_p * ln_2;
}

// A thread's packs of a row are block_stride apart.
constexpr int block_stride = block_threads * Pack::size;

// Begins to copy a row; each thread copies what itself will read.
template <int Packs>
__device__ __forceinline__ void fetch(Pack *to, const kdvfs_classifier &args, std::int64_t row, int first, int V) {
  if (row < args.M) {
    const void *const from = address_of(args.logits, row * args.Vp + first);
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      if (first + i * block_stride < V) {
        copy_async(to[i * block_threads], from, i * block_stride);
      }
    }
  }
  end_batch();
}

}  // namespace

// ptx: st.v4 b16 - the target's element, and the last elements of a row when V is not a multiple of 8
template <int Packs, int Stages>
__global__ void __launch_bounds__(block_threads, 1) classifier_kernel(const kdvfs_classifier args) {
  extern __shared__ Pack staged[];
  __shared__ float maxima[block_warps], sums[block_warps];
  __shared__ int row_target;
  const int V = static_cast<int>(args.V), packs = packs_of(V), rows = static_cast<int>(args.M), step = gridDim.x;
  const int first = threadIdx.x * Pack::size;
  for (int i = 0; i < Stages; i++) {
    fetch<Packs>(staged + i * packs + threadIdx.x, args, static_cast<std::int64_t>(blockIdx.x) + i * step, first, V);
  }
  int stage = 0;
  int next_target = threadIdx.x == 0 ? args.targets[blockIdx.x] : 0;
  for (int row = blockIdx.x; row < rows; row += step) {
    if (threadIdx.x == 0) {  // one row ahead, so that nobody waits for it
      row_target = next_target;
      next_target = row + step < rows ? args.targets[row + step] : 0;
    }
    wait_for_batch<Stages - 1>();
    Pack *const now = staged + stage * packs;
    if (threadIdx.x == (packs - 1) % block_threads) {
      cut_last(now[packs - 1], V);
    }
    Pack *const mine = now + threadIdx.x;
    Pack logits[Packs];
    std::uint32_t largest = minus_infinities;
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      if (first + i * block_stride < V) {
        logits[i] = mine[i * block_threads];
        raise_to(largest, logits[i]);
      }
    }
    fetch<Packs>(mine, args, row + static_cast<std::int64_t>(Stages) * step, first, V);
    stage = stage + 1 == Stages ? 0 : stage + 1;

    const float log2_largest = block_max<block_warps>(larger_half(largest), maxima) * log2_e;
    const int target = row_target;
    const float target_logit = is_mine(target) ? load_one(args.logits, start_of(args, row) + target) : 0.0f;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      if (first + i * block_stride < V) {
        float values[Pack::size];
        unpack(logits[i], values);
#pragma unroll
        for (const float value : values) {
          sum += exp2f(value * log2_e - log2_largest);
        }
      }
    }
    const float log2_total = log2_largest + __log2f(block_sum<block_warps>(sum, sums));
    const float offset = __log2f(args.dloss) - log2_total;
    void *const to = address_of(args.dlogits, start_of(args, row) + first);
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      const int left = V - first - i * block_stride;
      if (left > 0) {
        write_gradient(to, i * block_stride, left, logits[i], offset);
      }
    }
    if (is_mine(target)) {
      write_target(args, row, target, target_logit, log2_total);
    }
  }
}

// ptx: ld.v4 st.v4 b16 - as above
__global__ void __launch_bounds__(block_threads) classifier_reread_kernel(const kdvfs_classifier args) {
  __shared__ float maxima[block_warps], sums[block_warps];
  const int V = static_cast<int>(args.V), row = blockIdx.x, first = threadIdx.x * Pack::size;
  const std::int64_t start = start_of(args, row);
  // the maximum so far, and the sum so far in units of its power
  float largest = -FLT_MAX, sum = 0.0f;
#pragma unroll 4
  for (int column = first; column < V; column += block_stride) {
    Pack pack = load(args.logits, start + column);
    if (column + Pack::size > V) {
      cut_last(pack, V);
    }
    std::uint32_t pair = minus_infinities;
    raise_to(pair, pack);
    const float raised = fmaxf(largest, larger_half(pair));
    sum *= exp2f((largest - raised) * log2_e);
    largest = raised;
    float values[Pack::size];
    unpack(pack, values);
#pragma unroll
    for (const float value : values) {
      sum += exp2f((value - largest) * log2_e);
    }
  }
  const float row_largest = block_max<block_warps>(largest, maxima);
  sum *= exp2f((largest - row_largest) * log2_e);
  const float log2_total = row_largest * log2_e + __log2f(block_sum<block_warps>(sum, sums));
  const float offset = __log2f(args.dloss) - log2_total;
#pragma unroll 4
  for (int column = first; column < V; column += block_stride) {
    write_gradient(args.dlogits, start + column, V - column, load_streaming(args.logits, start + column), offset);
  }
  const int target = args.targets[row];
  if (is_mine(target)) {
    write_target(args, row, target, load_one(args.logits, start + target), log2_total);
  }
}

Launch configure(const kdvfs_classifier &args, const Limits &limits, const std::string &variant) {
  const char *const op = Operation<kdvfs_classifier>::name;
  if (variant != "vector") {
    refuse(op, "variant", "'" + variant + "'", "'vector'");
  }
  if (args.Vp % Pack::size != 0) {
    refuse(op, "Vp", std::to_string(args.Vp), "a multiple of 8");
  }
  const int packs = packs_of(static_cast<int>(args.V));
  const std::size_t row_bytes = packs * sizeof(Pack), static_bytes = (2 * block_warps + 1) * sizeof(float);
  Launch launch;
  launch.block = dim3(block_threads);
  if (packs <= packs_per_thread * block_threads &&
      row_bytes + static_bytes <= static_cast<std::size_t>(limits.shared_bytes_per_block)) {
    launch.function = reinterpret_cast<const void *>(&classifier_kernel<packs_per_thread, 1>);
    launch.shared_bytes = row_bytes;
    launch.grid = dim3(static_cast<unsigned>(std::min<std::int64_t>(args.M, limits.sm_count)));
  } else {
    launch.function = reinterpret_cast<const void *>(&classifier_reread_kernel);
    launch.grid = dim3(static_cast<unsigned>(args.M));
  }
  return launch;
}

}  // namespace kdvfs
