// Token and position embedding, and the gradients of the two tables.
#include <algorithm>

#include "kdvfs/buckets.hpp"
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/pack.cuh"
#include "kdvfs/reduce.cuh"
#include "kdvfs/rounding.h"
#include "kdvfs/staging.cuh"

namespace kdvfs {

namespace {

// Two elements of a table + their sums, rounded stochastically. `element`: of the first in its table.
__device__ __forceinline__ std::uint32_t pair_plus(std::uint32_t pair, float low_sum, float high_sum,
                                                   std::int64_t element, std::uint32_t seed) {
  const std::uint32_t index = static_cast<std::uint32_t>(element);
  const std::uint32_t low = kdvfs_round_stochastic(__float_as_uint(low_half(pair) + low_sum), index, seed);
  const std::uint32_t high = kdvfs_round_stochastic(__float_as_uint(high_half(pair) + high_sum), index + 1, seed);
  return low | high << 16;
}

__device__ __forceinline__ Pack table_plus(const Pack &table, const float (&sum)[Pack::size], std::int64_t element,
                                           std::uint32_t seed) {
  return {make_uint4(pair_plus(table.bits.x, sum[0], sum[1], element, seed),
                     pair_plus(table.bits.y, sum[2], sum[3], element + 2, seed),
                     pair_plus(table.bits.z, sum[4], sum[5], element + 4, seed),
                     pair_plus(table.bits.w, sum[6], sum[7], element + 6, seed))};
}

}  // namespace

namespace {

constexpr int forward_block_threads = 256;       // about
constexpr int forward_tile_packs = 16;           // of the channels
constexpr int forward_sequences_per_thread = 2;  // rows of wte in flight; they share one row of wpe

}  // namespace

// A block's x runs over packs of channels, its y over positions. The grid's z, slowest, runs over tiles of channels: so
// cut, the rows of wte that occur stay in L2, and an id's second occurrence does not read DRAM.
// ptx: ld.v4 st.v4
__global__ void embedding_forward_kernel(const kdvfs_embedding_forward args) {
  const int M = static_cast<int>(args.M), T = static_cast<int>(args.T), C = static_cast<int>(args.C);
  const int c = (blockIdx.z * blockDim.x + threadIdx.x) * Pack::size;
  const int t = blockIdx.x * blockDim.y + threadIdx.y;
  if (c >= C || t >= T) {
    return;
  }
  const Pack position = load(args.wpe, static_cast<std::int64_t>(t) * C + c);
  const int first = blockIdx.y * forward_sequences_per_thread * T + t;
  std::int64_t m[forward_sequences_per_thread];
  Pack tokens[forward_sequences_per_thread];
#pragma unroll
  for (int i = 0; i < forward_sequences_per_thread; i++) {
    // beyond the last sequence the first is made again, so that no branch stands between the loads
    m[i] = first + i * T < M ? first + i * T : first;
    const std::int64_t id = __ldg(args.ids + m[i]);
    // not evict_last, though it hits L2 more often: such lines outlive the kernel, and the next would have less of L2
    tokens[i] = {__ldcg(as_vector(args.wte, id * C + c))};
  }
#pragma unroll
  for (int i = 0; i < forward_sequences_per_thread; i++) {
    float sum[Pack::size];
    unpack(tokens[i], sum);
    add_to(sum, position);
    store_streaming(args.out, m[i] * C + c, pack_of(sum));
  }
}

Launch configure(const kdvfs_embedding_forward &args, const Limits &, const std::string &variant) {
  const char *const op = Operation<kdvfs_embedding_forward>::name;
  require_vector(op, variant);
  require_packs(op, "C", args.C);
  require_at_most(op, "M", args.M, INT32_MAX / forward_sequences_per_thread);
  const std::int64_t packs = args.C / Pack::size;
  const std::int64_t tiles = blocks_for(op, packs, forward_tile_packs, most_blocks_across);
  const std::int64_t tile_packs = blocks_for(op, packs, tiles);
  const std::int64_t positions = std::min(forward_block_threads / tile_packs, args.T);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(embedding_forward_kernel);
  launch.grid = dim3(blocks_for(op, args.T, positions),
                     blocks_for(op, args.M / args.T, forward_sequences_per_thread, most_blocks_across),
                     static_cast<unsigned>(tiles));
  launch.block = dim3(static_cast<unsigned>(tile_packs), static_cast<unsigned>(positions));
  return launch;
}

namespace {

constexpr int wpe_block_threads = 128;
constexpr int wpe_rows_in_flight = 4;

}  // namespace

// A thread sums eight channels of one position over the sequences.
// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(wpe_block_threads) wpe_backward_kernel(const kdvfs_wpe_backward args) {
  const std::int64_t table_size = args.T * args.C;
  const std::int64_t element = (static_cast<std::int64_t>(blockIdx.x) * wpe_block_threads + threadIdx.x) * Pack::size;
  if (element >= table_size) {
    return;
  }
  const Pack table = load_streaming(args.dwpe_in, element);
  float sum[Pack::size] = {};
  const auto add_rows = [&](int first, int count) {
    Pack rows[wpe_rows_in_flight];
#pragma unroll
    for (int i = 0; i < wpe_rows_in_flight; i++) {
      if (i < count) {
        rows[i] = load_streaming(args.dout, (first + i) * table_size + element);
      }
    }
#pragma unroll
    for (int i = 0; i < wpe_rows_in_flight; i++) {
      if (i < count) {
        add_to(sum, rows[i]);
      }
    }
  };
  const int B = static_cast<int>(args.M) / static_cast<int>(args.T);
  int b = 0;
  for (; b + wpe_rows_in_flight <= B; b += wpe_rows_in_flight) {
    add_rows(b, wpe_rows_in_flight);
  }
  add_rows(b, B - b);
  store_streaming(args.dwpe_out, element, table_plus(table, sum, element, args.seed));
}

Launch configure(const kdvfs_wpe_backward &args, const Limits &, const std::string &variant) {
  const char *const op = Operation<kdvfs_wpe_backward>::name;
  require_vector(op, variant);
  require_packs(op, "C", args.C);
  require_at_most(op, "M", args.M, INT32_MAX);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(wpe_backward_kernel);
  launch.grid = dim3(blocks_for(op, args.T * args.C, wpe_block_threads * Pack::size));
  launch.block = dim3(wpe_block_threads);
  return launch;
}

namespace {

constexpr int wte_warps = 8;
constexpr int wte_blocks_per_sm = 5;
constexpr int longest_for_a_warp = 32;  // tokens: each lane holds the number of one
constexpr int staged_rows = 2;          // of dout: most buckets have no more
constexpr int bucket_packs = bucket_channels / Pack::size;
static_assert(bucket_packs == 32, "a warp moves one token's channels of a bucket in one access");
constexpr int part_packs = 8;  // of a long bucket's channels
constexpr int part_channels = part_packs * Pack::size;
constexpr int parts_per_bucket = bucket_packs / part_packs;
static_assert(part_channels == 2 * 32, "a warp adds up a part, two channels in a lane");
constexpr int ring_stages = 6;
constexpr int stage_rows = 32 * wte_warps / part_packs;

__device__ __forceinline__ kdvfs_bucket bucket_at(const kdvfs_wte_backward &args, int i) {
  if (i >= static_cast<int>(args.bucket_count)) {
    return {0, 0, 0, 0};
  }
  const int4 words = __ldg(reinterpret_cast<const int4 *>(args.buckets) + i);
  return {words.x, words.y, words.z, words.w};
}

// A thread's eight channels of a bucket: in a token's row they start at `channel`.
struct Channels {
  int C, channel;

  __device__ Channels(const kdvfs_wte_backward &args, const kdvfs_bucket &bucket)
      : C(static_cast<int>(args.C)),
        channel(bucket.channel_group * static_cast<int>(bucket_channels) + threadIdx.x % 32 * Pack::size) {}
  __device__ bool exist() const { return channel < C; }
  __device__ std::int64_t of_row(int row) const { return static_cast<std::int64_t>(row) * C + channel; }
};

// The number of that token of the bucket which is this lane's; of a longer bucket, one of the first.
__device__ __forceinline__ int token_of_lane(const kdvfs_wte_backward &args, const kdvfs_bucket &bucket) {
  const int lane = threadIdx.x % 32;
  return lane < bucket.count ? __ldg(args.order + bucket.first + lane) : 0;
}

// What a bucket needs first, on its way to the warp that sums it. A lane reads no other's packs.
struct Staged {
  Pack table[32], rows[staged_rows][32];
};

// Begins to copy it; nothing for a long bucket, nor beyond the last one.
__device__ __forceinline__ void stage_bucket(const kdvfs_wte_backward &args, const kdvfs_bucket &bucket, int token,
                                             Staged &staged) {
  const Channels channels(args, bucket);
  const int lane = threadIdx.x % 32;
  const bool wanted = channels.exist() && bucket.count <= longest_for_a_warp;
  if (wanted && bucket.count > 0) {
    copy_async(staged.table[lane], args.dwte_in, channels.of_row(bucket.id));
  }
#pragma unroll
  for (int i = 0; i < staged_rows; i++) {
    const int m = __shfl_sync(whole_warp, token, i);
    if (wanted && i < bucket.count) {
      copy_async(staged.rows[i][lane], args.dout, channels.of_row(m));
    }
  }
  end_batch();
}

// One warp sums a bucket. It loads the rows that are not staged.
__device__ __forceinline__ void sum_by_warp(const kdvfs_wte_backward &args, const kdvfs_bucket &bucket, int token,
                                            const Staged &staged) {
  const Channels channels(args, bucket);
  const int lane = threadIdx.x % 32;
  float sum[Pack::size] = {};
#pragma unroll
  for (int i = 0; i < staged_rows; i++) {
    if (i < bucket.count) {
      add_to(sum, staged.rows[i][lane]);
    }
  }
#pragma unroll 1
  for (int first = staged_rows; first < bucket.count; first += staged_rows) {
    Pack rows[staged_rows];
#pragma unroll
    for (int i = 0; i < staged_rows; i++) {
      const int m = __shfl_sync(whole_warp, token, first + i);
      if (channels.exist() && first + i < bucket.count) {
        rows[i] = load_streaming(args.dout, channels.of_row(m));
      }
    }
#pragma unroll
    for (int i = 0; i < staged_rows; i++) {
      if (first + i < bucket.count) {
        add_to(sum, rows[i]);
      }
    }
  }
  if (channels.exist()) {
    const std::int64_t element = channels.of_row(bucket.id);
    store_streaming(args.dwte_out, element, table_plus(staged.table[lane], sum, element, args.seed));
  }
}

// Rows of a part on their way through shared memory.
struct Ring {
  Pack rows[ring_stages][stage_rows][part_packs];
};

// A block sums one part of a long bucket: its warps keep many rows in flight, and its first warp adds them up in their
// order. By parts, the longest bucket, which the kernel would have to wait for, is the work of several SMs.
__device__ __forceinline__ void sum_by_block(const kdvfs_wte_backward &args, const kdvfs_bucket &bucket, int part,
                                             Ring &ring) {
  const int C = static_cast<int>(args.C);
  const int first_channel = bucket.channel_group * static_cast<int>(bucket_channels) + part * part_channels;
  if (first_channel >= C) {  // all threads of the block
    return;
  }
  const int place = threadIdx.x / part_packs, pack = threadIdx.x % part_packs;
  const int channel = first_channel + pack * Pack::size;
  // The threads of one place hold the numbers of its tokens in as many stages, a thread one.
  const auto token_from = [&](int stage) {
    const int row = (stage + pack) * stage_rows + place;
    return row < bucket.count ? __ldg(args.order + bucket.first + row) : 0;
  };
  int token = 0, next_token = token_from(0);
  const auto copy_stage = [&](int stage) {
    if (stage % part_packs == 0) {
      token = next_token;
      next_token = token_from(stage + part_packs);
    }
    const std::int64_t m = __shfl_sync(whole_warp, token, stage % part_packs, part_packs);
    Pack &row = ring.rows[stage % ring_stages][place][pack];
    if (channel < C && stage * stage_rows + place < bucket.count) {
      copy_async(row, args.dout, m * C + channel);
    } else {
      row = {};  // so that all stages have equally many rows
    }
    end_batch();
  };
#pragma unroll 1
  for (int stage = 0; stage < ring_stages - 1; stage++) {
    copy_stage(stage);
  }
  float2 sum = {0.0f, 0.0f};
  for (int stage = 0; stage * stage_rows < bucket.count; stage++) {
    wait_for_batch<ring_stages - 2>();
    __syncthreads();  // this stage has arrived, and all have read the one before, which is filled again now
    copy_stage(stage + ring_stages - 1);
    if (threadIdx.x < 32) {
      const auto *pairs = reinterpret_cast<const std::uint32_t *>(ring.rows[stage % ring_stages]) + threadIdx.x;
#pragma unroll 8
      for (int row = 0; row < stage_rows; row++) {
        sum.x += low_half(pairs[row * 32]);
        sum.y += high_half(pairs[row * 32]);
      }
    }
  }
  const int own_channel = first_channel + 2 * threadIdx.x;
  if (threadIdx.x < 32 && own_channel < C) {
    const std::int64_t element = static_cast<std::int64_t>(bucket.id) * C + own_channel;
    const auto *table = reinterpret_cast<const std::uint32_t *>(args.dwte_in) + element / 2;
    auto *table_out = reinterpret_cast<std::uint32_t *>(args.dwte_out) + element / 2;
    __stcs(table_out, pair_plus(__ldcs(table), sum.x, sum.y, element, args.seed));
  }
  __syncthreads();
}

}  // namespace

// Long buckets, which come first, take a block for each part; the others a warp each. Bucket, numbers of tokens, and
// rows are three loads that wait for one another: a warp starts those of its next buckets before it waits for the
// present rows.
// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(32 * wte_warps, wte_blocks_per_sm)
    wte_backward_kernel(const kdvfs_wte_backward args) {
  __shared__ union {
    Ring ring;
    Staged staged[wte_warps][2];
  } shared;
  for (int i = blockIdx.x; bucket_at(args, i / parts_per_bucket).count > longest_for_a_warp; i += gridDim.x) {
    sum_by_block(args, bucket_at(args, i / parts_per_bucket), i % parts_per_bucket, shared.ring);
  }
  Staged *const staged = shared.staged[threadIdx.x / 32];
  const int step = gridDim.x * wte_warps;
  int i = blockIdx.x * wte_warps + threadIdx.x / 32;
  kdvfs_bucket bucket = bucket_at(args, i), next = bucket_at(args, i + step);
  kdvfs_bucket after_next = bucket_at(args, i + 2 * step);
  int token = token_of_lane(args, bucket), next_token = token_of_lane(args, next);
  stage_bucket(args, bucket, token, staged[0]);
  for (int turn = 0; bucket.count > 0; turn ^= 1) {
    stage_bucket(args, next, next_token, staged[turn ^ 1]);
    const int token_after_next = token_of_lane(args, after_next);
    i += step;
    const kdvfs_bucket one_more = bucket_at(args, i + 2 * step);
    wait_for_batch<1>();
    if (bucket.count <= longest_for_a_warp) {
      sum_by_warp(args, bucket, token, staged[turn]);
    }
    bucket = next, next = after_next, after_next = one_more;
    token = next_token, next_token = token_after_next;
  }
}

Launch configure(const kdvfs_wte_backward &args, const Limits &limits, const std::string &variant) {
  const char *const op = Operation<kdvfs_wte_backward>::name;
  require_vector(op, variant);
  require_packs(op, "C", args.C);
  require_at_most(op, "the number of buckets", args.bucket_count, INT32_MAX / (2 * parts_per_bucket));
  const std::int64_t resident = static_cast<std::int64_t>(limits.sm_count) * wte_blocks_per_sm;
  const std::int64_t needed = blocks_for(op, args.bucket_count, wte_warps);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(wte_backward_kernel);
  launch.grid = dim3(static_cast<unsigned>(std::clamp<std::int64_t>(needed, 1, resident)));
  launch.block = dim3(32 * wte_warps);
  return launch;
}

}  // namespace kdvfs
