// Token and position embedding, and the gradients of the two tables.
#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "kdvfs/buckets.hpp"
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/pack.cuh"
#include "kdvfs/reduce.cuh"
#include "kdvfs/rounding.h"

namespace kdvfs {

namespace {

void require_vector(const char *op, std::int64_t C, const std::string &variant) {
  if (variant != "vector") {
    refuse(op, "variant", "'" + variant + "'", "'vector'");
  }
  if (C % Pack::size != 0) {
    refuse(op, "C", std::to_string(C), "a multiple of 8");
  }
}

void require_at_most(const char *op, const char *name, std::int64_t value, std::int64_t limit) {
  if (value > limit) {
    refuse(op, name, std::to_string(value), "at most " + std::to_string(limit));
  }
}

unsigned blocks_for(std::int64_t work, std::int64_t work_per_block) {
  return static_cast<unsigned>((work + work_per_block - 1) / work_per_block);
}

// table + sum, rounded stochastically. `element`: of the first of the eight in its table.
__device__ __forceinline__ Pack table_plus(const Pack &table, const float (&sum)[Pack::size], std::int64_t element,
                                           std::uint32_t seed) {
  float values[Pack::size];
  unpack(table, values);
  std::uint32_t words[Pack::size / 2];
#pragma unroll
  for (int i = 0; i < Pack::size; i += 2) {
    const std::uint32_t index = static_cast<std::uint32_t>(element) + i;
    const std::uint32_t low = kdvfs_round_stochastic(__float_as_uint(values[i] + sum[i]), index, seed);
    const std::uint32_t high = kdvfs_round_stochastic(__float_as_uint(values[i + 1] + sum[i + 1]), index + 1, seed);
    words[i / 2] = low | high << 16;
  }
  return {make_uint4(words[0], words[1], words[2], words[3])};
}

}  // namespace

namespace {

constexpr int forward_block_threads = 256;       // about
constexpr int forward_tile_packs = 32;           // of the channels
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
  require_vector(op, args.C, variant);
  require_at_most(op, "M", args.M, INT32_MAX / forward_sequences_per_thread);
  require_at_most(op, "M / T", args.M / args.T, INT64_C(65535) * forward_sequences_per_thread);
  const std::int64_t packs = args.C / Pack::size;
  const std::int64_t tiles = blocks_for(packs, forward_tile_packs);
  const std::int64_t tile_packs = blocks_for(packs, tiles);
  const std::int64_t positions = std::min(forward_block_threads / tile_packs, args.T);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(embedding_forward_kernel);
  launch.grid = dim3(blocks_for(args.T, positions), blocks_for(args.M / args.T, forward_sequences_per_thread),
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
  require_vector(op, args.C, variant);
  require_at_most(op, "M", args.M, INT32_MAX);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(wpe_backward_kernel);
  launch.grid = dim3(blocks_for(args.T * args.C, wpe_block_threads * Pack::size));
  launch.block = dim3(wpe_block_threads);
  return launch;
}

namespace {

constexpr int wte_warps = 8;
constexpr int wte_blocks_per_sm = 4;
constexpr int wte_rows_in_flight = 2;
constexpr int longest_for_a_warp = 32;  // tokens: each lane holds the number of one
constexpr int ring_stages = 3;
constexpr int stage_rows_per_warp = 2;
constexpr int stage_rows = stage_rows_per_warp * wte_warps;
constexpr int bucket_packs = bucket_channels / Pack::size;
static_assert(bucket_packs == 32, "a warp moves one token's channels of a bucket in one access");

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

// One warp sums a bucket.
__device__ __forceinline__ void sum_by_warp(const kdvfs_wte_backward &args, const kdvfs_bucket &bucket, int token) {
  const Channels channels(args, bucket);
  const std::int64_t element = channels.of_row(bucket.id);
  Pack table;
  if (channels.exist()) {
    table = load_streaming(args.dwte_in, element);
  }
  float sum[Pack::size] = {};
  for (int first = 0; first < bucket.count; first += wte_rows_in_flight) {
    Pack rows[wte_rows_in_flight];
#pragma unroll
    for (int i = 0; i < wte_rows_in_flight; i++) {
      const int m = __shfl_sync(whole_warp, token, first + i);
      if (channels.exist() && first + i < bucket.count) {
        rows[i] = load_streaming(args.dout, channels.of_row(m));
      }
    }
#pragma unroll
    for (int i = 0; i < wte_rows_in_flight; i++) {
      if (first + i < bucket.count) {
        add_to(sum, rows[i]);
      }
    }
  }
  if (channels.exist()) {
    store_streaming(args.dwte_out, element, table_plus(table, sum, element, args.seed));
  }
}

// Rows on their way through shared memory.
struct Ring {
  uint4 rows[ring_stages][stage_rows][bucket_packs];
};

// All warps of a block sum one long bucket. Its rows flow through a ring, as one warp's registers could not keep enough
// of them in flight. A thread adds up two channels, in the order of the rows.
__device__ __forceinline__ void sum_by_block(const kdvfs_wte_backward &args, const kdvfs_bucket &bucket, Ring &ring) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Channels channels(args, bucket);
  const auto copy_stage = [&](int stage) {
#pragma unroll
    for (int i = 0; i < stage_rows_per_warp; i++) {
      const int place = i * wte_warps + warp, row = stage * stage_rows + place;
      if (channels.exist() && row < bucket.count) {
        const int m = __ldg(args.order + bucket.first + row);
        __pipeline_memcpy_async(&ring.rows[stage % ring_stages][place][lane],
                                as_vector(args.dout, channels.of_row(m)), sizeof(uint4));
      }
    }
    __pipeline_commit();
  };
#pragma unroll 1
  for (int stage = 0; stage < ring_stages - 1; stage++) {
    copy_stage(stage);
  }
  float2 sum = {0.0f, 0.0f};
  const bool adds = threadIdx.x < bucket_channels / 2;
  for (int stage = 0; stage * stage_rows < bucket.count; stage++) {
    __pipeline_wait_prior(ring_stages - 2);
    __syncthreads();  // this stage has arrived, and all have read the one before, which is filled again now
    copy_stage(stage + ring_stages - 1);
    if (adds) {
      const int row_count = min(stage_rows, bucket.count - stage * stage_rows);
      for (int row = 0; row < row_count; row++) {
        const auto *pairs = reinterpret_cast<const std::uint32_t *>(ring.rows[stage % ring_stages][row]);
        sum.x += low_half(pairs[threadIdx.x]);
        sum.y += high_half(pairs[threadIdx.x]);
      }
    }
  }
  __syncthreads();
  auto *sums = reinterpret_cast<float *>(&ring);
  if (adds) {
    reinterpret_cast<float2 *>(sums)[threadIdx.x] = sum;
  }
  __syncthreads();
  if (warp == 0 && channels.exist()) {
    float sum_of_pack[Pack::size];
#pragma unroll
    for (int i = 0; i < Pack::size; i++) {
      sum_of_pack[i] = sums[lane * Pack::size + i];
    }
    const std::int64_t element = channels.of_row(bucket.id);
    const Pack table = load_streaming(args.dwte_in, element);
    store_streaming(args.dwte_out, element, table_plus(table, sum_of_pack, element, args.seed));
  }
  __syncthreads();
}

}  // namespace

// Long buckets, which come first, take a block each; the others a warp each. Bucket, numbers of tokens, and rows are
// three loads that wait for one another: a warp starts those of its next buckets before it waits for the present rows.
// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(32 * wte_warps, wte_blocks_per_sm)
    wte_backward_kernel(const kdvfs_wte_backward args) {
  __shared__ Ring ring;
  for (int i = blockIdx.x; bucket_at(args, i).count > longest_for_a_warp; i += gridDim.x) {
    sum_by_block(args, bucket_at(args, i), ring);
  }
  const int step = gridDim.x * wte_warps;
  int i = blockIdx.x * wte_warps + threadIdx.x / 32;
  kdvfs_bucket bucket = bucket_at(args, i), next = bucket_at(args, i + step);
  int token = token_of_lane(args, bucket);
  while (bucket.count > 0) {
    const int next_token = token_of_lane(args, next);
    i += step;
    const kdvfs_bucket after_next = bucket_at(args, i + step);
    if (bucket.count <= longest_for_a_warp) {
      sum_by_warp(args, bucket, token);
    }
    bucket = next;
    next = after_next;
    token = next_token;
  }
}

Launch configure(const kdvfs_wte_backward &args, const Limits &limits, const std::string &variant) {
  const char *const op = Operation<kdvfs_wte_backward>::name;
  require_vector(op, args.C, variant);
  require_at_most(op, "the number of buckets", args.bucket_count, INT32_MAX / 4);
  const std::int64_t resident = static_cast<std::int64_t>(limits.sm_count) * wte_blocks_per_sm;
  const std::int64_t needed = blocks_for(args.bucket_count, wte_warps);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(wte_backward_kernel);
  launch.grid = dim3(static_cast<unsigned>(std::clamp<std::int64_t>(needed, 1, resident)));
  launch.block = dim3(32 * wte_warps);
  return launch;
}

}  // namespace kdvfs
