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

constexpr int most_threads = 1024, most_packs = 8;  // a block's, and a thread's of a row
constexpr int stride = most_threads * Pack::size;   // from one pack of a thread to its next

__device__ __forceinline__ std::int64_t start_of(const kdvfs_classifier &args, int row) { return row * args.Vp; }

// Packs of a row, the last one perhaps partly beyond V.
__host__ __device__ constexpr int packs_of(int V) { return (V + Pack::size - 1) / Pack::size; }

// Takes the pad columns out of a row's last pack: they count for nothing.
__device__ __forceinline__ void cut_last(Pack &pack, int V) {
  keep_first(pack, (V - 1) % Pack::size + 1, minus_infinities);
}

// The target's column is its own thread's business: the one that writes the gradient there.
__device__ __forceinline__ bool is_mine(int column) {
  return column / Pack::size % most_threads == static_cast<int>(threadIdx.x);
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
    store(to, element, pack_of(values));
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
                                             float loss_in, float log2_total) {
  const float log2_p = logit * log2_e - log2_total;
  store_one(args.dlogits, start_of(args, row) + column, args.dloss * (exp2f(log2_p) - 1.0f));
  args.losses_out[row] = loss_in - log2_p * ln_2;
}

// Begins to copy a row; each thread copies what itself will read.
__device__ __forceinline__ void fetch(Pack *mine, const kdvfs_classifier &args, std::int64_t row, int first, int V) {
  if (row < args.M) {
    const void *const from = address_of(args.logits, row * args.Vp + first);
#pragma unroll
    for (int i = 0; i < most_packs; i++) {
      if (first + i * stride < V) {
        copy_async(mine[i * most_threads], from, i * stride);
      }
    }
  }
  end_batch();
}

// What else a row's gradient needs.
struct Target {
  int column;
  float loss_in;
};

__device__ __forceinline__ Target target_of(const kdvfs_classifier &args, std::int64_t row) {
  return row < args.M ? Target{args.targets[row], args.losses_in[row]} : Target{};
}

}  // namespace

// ptx: st.v4 b16 - the target's element, and the last elements of a row when V is not a multiple of 8
__global__ void __launch_bounds__(most_threads, 1) classifier_kernel(const kdvfs_classifier args) {
  extern __shared__ Pack staged[];
  __shared__ float maxima[most_threads / 32], sums[most_threads / 32];
  __shared__ Target targets[4];  // the next row's, this one's, and the last one's, which a slow warp may still read
  const int V = static_cast<int>(args.V), packs = packs_of(V), rows = static_cast<int>(args.M), step = gridDim.x;
  const int first = threadIdx.x * Pack::size;
  const bool has_last = threadIdx.x == (packs - 1) % most_threads;
  Pack *const mine = staged + threadIdx.x;
  fetch(mine, args, blockIdx.x, first, V);
  Target coming{};  // thread 0 reads it well ahead, so that nobody waits for it
  if (threadIdx.x == 0) {
    targets[0] = target_of(args, blockIdx.x);
    coming = target_of(args, static_cast<std::int64_t>(blockIdx.x) + step);
  }
  __syncthreads();
  for (int row = blockIdx.x, turn = 0; row < rows; row += step, turn = (turn + 1) % 4) {
    if (threadIdx.x == 0) {
      targets[(turn + 1) % 4] = coming;
      coming = target_of(args, row + 2 * static_cast<std::int64_t>(step));
    }
    wait_for_batch<0>();
    if (has_last) {
      cut_last(staged[packs - 1], V);
    }
    Pack logits[most_packs];
    std::uint32_t largest = minus_infinities;
#pragma unroll
    for (int i = 0; i < most_packs; i++) {
      if (first + i * stride < V) {
        logits[i] = mine[i * most_threads];
        raise_to(largest, logits[i]);
      }
    }
    float target_logit = 0.0f;
    if (const int column = targets[turn].column; is_mine(column)) {
      target_logit = low_half(reinterpret_cast<const unsigned short *>(staged)[column]);
    }
    fetch(mine, args, static_cast<std::int64_t>(row) + step, first, V);

    const float log2_largest = block_reduce<Maximum, most_threads / 32>(larger_half(largest), maxima) * log2_e;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < most_packs; i++) {
      if (first + i * stride < V) {
        float values[Pack::size];
        unpack(logits[i], values);
#pragma unroll
        for (const float value : values) {
          sum += exp2f(value * log2_e - log2_largest);
        }
      }
    }
    const float log2_total = log2_largest + __log2f(block_reduce<Sum, most_threads / 32>(sum, sums));
    const float offset = __log2f(args.dloss) - log2_total;
    void *const to = address_of(args.dlogits, start_of(args, row) + first);
#pragma unroll
    for (int i = 0; i < most_packs; i++) {
      const int left = V - first - i * stride;
      if (left > 0) {
        write_gradient(to, i * stride, left, logits[i], offset);
      }
    }
    if (const Target target = targets[turn]; is_mine(target.column)) {
      write_target(args, row, target.column, target_logit, target.loss_in, log2_total);
    }
  }
}

// ptx: ld.v4 st.v4 b16 - as above
__global__ void __launch_bounds__(most_threads) classifier_reread_kernel(const kdvfs_classifier args) {
  __shared__ float maxima[most_threads / 32], sums[most_threads / 32];
  const int V = static_cast<int>(args.V), row = blockIdx.x, first = threadIdx.x * Pack::size;
  const std::int64_t start = start_of(args, row);
  // the maximum so far, and the sum so far in units of its power
  float largest = -FLT_MAX, sum = 0.0f;
#pragma unroll 4
  for (int column = first; column < V; column += stride) {
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
  const float row_largest = block_reduce<Maximum, most_threads / 32>(largest, maxima);
  sum *= exp2f((largest - row_largest) * log2_e);
  const float log2_total = row_largest * log2_e + __log2f(block_reduce<Sum, most_threads / 32>(sum, sums));
  const float offset = __log2f(args.dloss) - log2_total;
#pragma unroll 4
  for (int column = first; column < V; column += stride) {
    write_gradient(args.dlogits, start + column, V - column, load_streaming(args.logits, start + column), offset);
  }
  const int target = args.targets[row];
  if (is_mine(target)) {
    write_target(args, row, target, load_one(args.logits, start + target), args.losses_in[row], log2_total);
  }
}

Launch configure(const kdvfs_classifier &args, const Limits &limits, const std::string &variant) {
  const char *const op = Operation<kdvfs_classifier>::name;
  require_vector(op, variant);
  require_packs(op, "Vp", args.Vp);
  require_at_most(op, "M", args.M, INT32_MAX - limits.sm_count);  // a block counts on past the last row
  const int packs = packs_of(static_cast<int>(args.V));
  const std::size_t row_bytes = packs * sizeof(Pack);
  const std::size_t other_bytes = 2 * most_threads / 32 * sizeof(float) + 4 * sizeof(Target);
  Launch launch;
  launch.block = dim3(most_threads);
  if (packs <= most_packs * most_threads &&
      row_bytes + other_bytes <= static_cast<std::size_t>(limits.shared_bytes_per_block)) {
    launch.function = reinterpret_cast<const void *>(&classifier_kernel);
    launch.grid = dim3(static_cast<unsigned>(std::min<std::int64_t>(args.M, limits.sm_count)));
    launch.shared_bytes = row_bytes;
  } else {
    launch.function = reinterpret_cast<const void *>(&classifier_reread_kernel);
    launch.grid = dim3(blocks_for(op, args.M, 1));
  }
  return launch;
}

}  // namespace kdvfs
