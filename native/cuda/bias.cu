// Gradient of a bias: column sums, over all rows or over G parts of them that bias_reduce adds up.
#include <algorithm>

#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/pack.cuh"

namespace kdvfs {

namespace {

__device__ __forceinline__ void add_to(float (&sum)[Pack::size], const float4 &low, const float4 &high) {
  const float values[Pack::size] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < Pack::size; i++) {
    sum[i] += values[i];
  }
}

__device__ __forceinline__ void store_floats(float *to, const float (&values)[Pack::size]) {
  auto *const vectors = reinterpret_cast<float4 *>(to);
  vectors[0] = make_float4(values[0], values[1], values[2], values[3]);
  vectors[1] = make_float4(values[4], values[5], values[6], values[7]);
}

// dbias_out = dbias_in + sum, for eight columns
__device__ __forceinline__ void add_to_bias(const void *dbias_in, void *dbias_out, std::int64_t column,
                                            float (&sum)[Pack::size]) {
  add_to(sum, load(dbias_in, column));
  store(dbias_out, column, pack_of(sum));
}

std::int64_t ceiling(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr int warps = 8;
constexpr int rows_in_flight = 8;               // per thread
constexpr int threads_per_sm = 512;             // enough in flight; more would be more chunks to add up
constexpr int block_columns = 32 * Pack::size;  // a lane has eight
constexpr int round_rows = warps * rows_in_flight;

// Eight column sums of every lane, on their way between warps.
struct Sums {
  float4 of_warp[warps][32][2];
};

// The sums over the block's warps, in their order; only the first warp gets them.
__device__ __forceinline__ void sum_over_warps(float (&sum)[Pack::size], Sums &shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  store_floats(reinterpret_cast<float *>(shared.of_warp[warp][lane]), sum);
  __syncthreads();
  if (warp == 0) {
#pragma unroll
    for (int other = 1; other < warps; other++) {
      add_to(sum, shared.of_warp[other][lane][0], shared.of_warp[other][lane][1]);
    }
  }
}

// The block's rows: chunk blockIdx.y of part blockIdx.z. All chunks of a part have whole rounds but the last.
struct Rows {
  std::int64_t begin, end;

  __device__ explicit Rows(const kdvfs_bias_backward &args) {
    const unsigned M = static_cast<unsigned>(args.M), part_rows = (M + gridDim.z - 1) / gridDim.z;
    const unsigned part_end = min((blockIdx.z + 1) * part_rows, M);
    const unsigned rounds = (part_rows + gridDim.y * round_rows - 1) / (gridDim.y * round_rows);
    begin = blockIdx.z * part_rows + blockIdx.y * rounds * round_rows;
    end = min(begin + rounds * round_rows, static_cast<std::int64_t>(part_end));
  }
};

}  // namespace

// A block sums 256 columns over a chunk of rows and leaves the sums in scratch. The last block of a part to do so adds
// up the chunks, in their order: which block that is differs between launches, what it computes does not.
// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(32 * warps, threads_per_sm / (32 * warps))
    bias_backward_kernel(const kdvfs_bias_backward args, void *scratch) {
  __shared__ Sums shared;
  __shared__ bool is_last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * block_columns + lane * Pack::size;
  const bool column_exists = column < args.OC;

  float sum[Pack::size] = {};
  if (column_exists) {
    const Rows rows(args);
    std::int64_t row = rows.begin + warp;
    for (; row + (rows_in_flight - 1) * warps < rows.end; row += round_rows) {
      Pack packs[rows_in_flight];
#pragma unroll
      for (int i = 0; i < rows_in_flight; i++) {
        packs[i] = load_streaming(args.dout, (row + i * warps) * args.OC + column);
      }
#pragma unroll
      for (int i = 0; i < rows_in_flight; i++) {
        add_to(sum, packs[i]);
      }
    }
    for (; row < rows.end; row += warps) {
      add_to(sum, load_streaming(args.dout, row * args.OC + column));
    }
  }
  sum_over_warps(sum, shared);

  const int chunks = gridDim.y, part = blockIdx.z * gridDim.x + blockIdx.x, parts = gridDim.z * gridDim.x;
  float *const sums_of_part = static_cast<float *>(scratch) + static_cast<std::int64_t>(part) * chunks * block_columns;
  auto *const tickets = reinterpret_cast<unsigned *>(static_cast<float *>(scratch) +
                                                     static_cast<std::int64_t>(parts) * chunks * block_columns);
  if (warp == 0) {
    store_floats(sums_of_part + blockIdx.y * block_columns + lane * Pack::size, sum);
    __threadfence();
    __syncwarp();
    if (lane == 0) {
      is_last = atomicInc(tickets + part, chunks - 1) == chunks - 1;  // wraps to 0, ready for the next launch
    }
  }
  __syncthreads();
  if (!is_last) {
    return;
  }
  __threadfence();
#pragma unroll
  for (float &value : sum) {
    value = 0.0f;
  }
#pragma unroll 4
  for (int chunk = warp; chunk < chunks; chunk += warps) {
    const auto *from = reinterpret_cast<const float4 *>(sums_of_part + chunk * block_columns + lane * Pack::size);
    add_to(sum, __ldcg(from), __ldcg(from + 1));
  }
  sum_over_warps(sum, shared);
  if (warp == 0 && column_exists) {
    if (args.G == 1) {
      add_to_bias(args.dbias_in, args.dbias_out, column, sum);
    } else {
      store_floats(args.partials + blockIdx.z * args.OC + column, sum);
    }
  }
}

Launch configure(const kdvfs_bias_backward &args, const Limits &limits, const std::string &variant) {
  const char *const op = Operation<kdvfs_bias_backward>::name;
  require_vector(op, variant);
  require_packs(op, "OC", args.OC);
  require_at_most(op, "M", args.M, INT32_MAX);
  require_at_most(op, "G", args.G, most_blocks_across);
  const std::int64_t column_groups = blocks_for(op, args.OC, block_columns), part_rows = ceiling(args.M, args.G);
  // one wave of blocks, so that all end together
  const std::int64_t resident = static_cast<std::int64_t>(limits.sm_count) * (threads_per_sm / (32 * warps));
  const std::int64_t chunks = std::max<std::int64_t>(resident / (column_groups * args.G), 1);
  const std::int64_t chunk_rows = ceiling(part_rows, chunks * round_rows) * round_rows;
  Launch launch;
  launch.function = reinterpret_cast<const void *>(bias_backward_kernel);
  launch.grid = dim3(static_cast<unsigned>(column_groups), blocks_for(op, part_rows, chunk_rows, most_blocks_across),
                     static_cast<unsigned>(args.G));
  launch.block = dim3(32 * warps);
  const std::size_t parts = std::size_t{launch.grid.x} * launch.grid.z;
  launch.scratch_bytes = parts * (launch.grid.y * block_columns * sizeof(float) + sizeof(unsigned));
  return launch;
}

namespace {

constexpr int reduce_block_threads = 64;  // few: more blocks share the little there is to load

}  // namespace

// A thread sums eight columns.
// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(reduce_block_threads) bias_reduce_kernel(const kdvfs_bias_reduce args) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * reduce_block_threads + threadIdx.x) * Pack::size;
  if (column >= args.OC) {
    return;
  }
  float sum[Pack::size] = {};
#pragma unroll 4
  for (std::int64_t g = 0; g < args.G; g++) {
    const auto *from = reinterpret_cast<const float4 *>(args.partials + g * args.OC + column);
    add_to(sum, __ldg(from), __ldg(from + 1));
  }
  add_to_bias(args.dbias_in, args.dbias_out, column, sum);
}

Launch configure(const kdvfs_bias_reduce &args, const Limits &, const std::string &variant) {
  const char *const op = Operation<kdvfs_bias_reduce>::name;
  require_vector(op, variant);
  require_packs(op, "OC", args.OC);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(bias_reduce_kernel);
  launch.grid = dim3(blocks_for(op, args.OC, reduce_block_threads * Pack::size));
  launch.block = dim3(reduce_block_threads);
  return launch;
}

}  // namespace kdvfs
