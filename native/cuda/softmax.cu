// Causal softmax over the rows of N squares of T x T, and its gradient. A row lies in the registers of a warp, a long
// one in those of a block, and no further than to the diagonal is it read.
#include <algorithm>

#include "kdvfs/address.cuh"
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/reduce.cuh"
#include "kdvfs/softmax.cuh"
#include "kdvfs/tail.cuh"

namespace kdvfs {

namespace {

constexpr int most_threads = 128;  // a block's, unless a row alone has more

template <int Lanes>
constexpr int threads_for = Lanes > most_threads ? Lanes : most_threads;

// Over the `Lanes` threads that share a row: a warp, or the whole block.
template <typename Reduction, int Lanes>
__device__ __forceinline__ float row_reduce(float value) {
  if constexpr (Lanes == 32) {
    return warp_reduce<Reduction>(value);
  } else {
    __shared__ float shared[Lanes / 32];
    return block_reduce<Reduction, Lanes / 32>(value, shared);
  }
}

// Which row: t of a square, counted over all squares. The end of every square first: what is left for the last wave of
// blocks is short.
template <int Lanes>
__device__ __forceinline__ bool find_row(int N, int T, unsigned &row, int &t) {
  const unsigned rows = static_cast<unsigned>(N) * T;
  const unsigned from_end = blockIdx.x * (blockDim.x / Lanes) + threadIdx.x / Lanes;
  row = rows - 1 - from_end;
  t = static_cast<int>(row % T);
  return from_end < rows;
}

// Where the zeros end that follow row t's diagonal, when not all of the row is wanted.
__device__ __forceinline__ int sector_end(int t, std::int64_t T) {
  // a sector written in part is read first: 0.75 of the copy instead of 0.87
  return min(static_cast<int>(T), (t / KDVFS_SECTOR + 1) * KDVFS_SECTOR);
}

// A thread's packs of a row: one in each stride of `Lanes` packs.
template <int Lanes>
struct CausalRow {
  static constexpr int stride = Lanes * Pack::size;
  std::int64_t start;  // its element in the first stride
  int whole;           // strides before the one that the diagonal crosses
  int crossed;         // where that one begins, from start
  int left;            // elements from its pack there up to the diagonal

  __device__ __forceinline__ CausalRow(unsigned row, int t, std::int64_t T) {
    const int lane = threadIdx.x % Lanes;
    start = row * T + lane * Pack::size;
    whole = t / stride;
    crossed = whole * stride;
    left = t + 1 - crossed - lane * Pack::size;
  }

  // The last of `packs` is the one in the crossed stride; cut it before use. `load_pack`: by which way through the
  // caches.
  template <int Packs, typename Load>
  __device__ __forceinline__ void read(Pack (&packs)[Packs], const void *tensor, const Load &load_pack) const {
    const void *const mine = address_of(tensor, start);
#pragma unroll
    for (int i = 0; i < Packs - 1; i++) {
      if (i < whole) {
        packs[i] = load_pack(mine, i * stride);
      }
    }
    // a lane above the diagonal reads the row's first pack instead: no branch
    const int lane = threadIdx.x % Lanes;
    packs[Packs - 1] = load_pack(mine, left > 0 ? crossed : -lane * Pack::size);
  }

  template <int Packs>
  __device__ __forceinline__ void cut(Pack (&packs)[Packs], std::uint32_t filler) const {
    keep_first(packs[Packs - 1], left, filler);
  }
};

}  // namespace

// ptx: ld.v4 st.v4
template <int Lanes, int Packs>
__global__ void __launch_bounds__(threads_for<Lanes>) softmax_forward_kernel(const kdvfs_softmax_forward args) {
  unsigned index;
  int t;
  if (!find_row<Lanes>(args.N, args.T, index, t)) {
    return;
  }
  const CausalRow<Lanes> row(index, t, args.T);
  Pack pre[Packs];
  row.read(pre, args.pre, load);
  row.cut(pre, minus_infinities);
  std::uint32_t largest = minus_infinities;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (i < row.whole || i == Packs - 1) {
      raise_to(largest, pre[i]);
    }
  }
  const float scale = args.scale * log2_e;
  const float offset = -scale * row_reduce<Maximum, Lanes>(larger_half(largest));
  float att[Packs][Pack::size], sum = 0.0f;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (i < row.whole || i == Packs - 1) {
      unpack(pre[i], att[i]);
#pragma unroll
      for (float &value : att[i]) {
        value = exp2f(value * scale + offset);
        sum += value;
      }
    }
  }
  const float norm = 1.0f / row_reduce<Sum, Lanes>(sum);
  void *const mine = address_of(args.att, row.start);
  const int lane = threadIdx.x % Lanes, end = sector_end(t, args.T) - lane * Pack::size;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (i < row.whole || i == Packs - 1) {
#pragma unroll
      for (float &value : att[i]) {
        value *= norm;
      }
      if (i < Packs - 1 || row.crossed < end) {
        store(mine, i < Packs - 1 ? i * row.stride : row.crossed, pack_of(att[i]));
      }
    }
  }
}

// ptx: ld.v4 st.v4
template <int Lanes, int Packs>
__global__ void __launch_bounds__(threads_for<Lanes>) softmax_backward_kernel(const kdvfs_softmax_backward args) {
  unsigned index;
  int t;
  if (!find_row<Lanes>(args.N, args.T, index, t)) {
    return;
  }
  const CausalRow<Lanes> row(index, t, args.T);
  Pack att[Packs], datt[Packs];
  row.read(att, args.att, load_streaming);
  row.read(datt, args.datt, load_streaming);

  void *const mine = address_of(args.dpre, row.start);
  const int written = args.skip_upper ? sector_end(t, args.T) : static_cast<int>(args.T);
  const int lane = threadIdx.x % Lanes, end = written - lane * Pack::size;
#pragma unroll 1
  for (int u = row.crossed + row.stride; u < end; u += row.stride) {
    store_streaming(mine, u, Pack{});
  }
  row.cut(att, zeros);
  row.cut(datt, zeros);
  float dot = 0.0f;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (i < row.whole || i == Packs - 1) {
      float a[Pack::size], d[Pack::size];
      unpack(att[i], a);
      unpack(datt[i], d);
#pragma unroll
      for (int j = 0; j < Pack::size; j++) {
        dot += a[j] * d[j];
      }
    }
  }
  const float offset = -args.scale * row_reduce<Sum, Lanes>(dot);
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (i < row.whole || i == Packs - 1) {
      float a[Pack::size], d[Pack::size];
      unpack(att[i], a);
      unpack(datt[i], d);
#pragma unroll
      for (int j = 0; j < Pack::size; j++) {
        d[j] = fmaf(a[j], d[j] * args.scale + offset, 0.0f);  // + 0: no -0 above the diagonal
      }
      if (i < Packs - 1 || row.crossed < end) {
        store_streaming(mine, i < Packs - 1 ? i * row.stride : row.crossed, pack_of(d));
      }
    }
  }
}

// One element a lane, as a kernel without vector accesses would do it; the second pass reads from the cache.
// ptx: none b16 - what this variant is for
__global__ void __launch_bounds__(most_threads) softmax_backward_scalar_kernel(const kdvfs_softmax_backward args) {
  unsigned row;
  int t;
  if (!find_row<32>(args.N, args.T, row, t)) {
    return;
  }
  const int lane = threadIdx.x % 32;
  const std::int64_t start = row * args.T;
  float dot = 0.0f;
#pragma unroll 8
  for (int u = lane; u <= t; u += 32) {
    dot += load_one(args.att, start + u) * load_one(args.datt, start + u);
  }
  const float offset = -args.scale * warp_reduce<Sum>(dot);
#pragma unroll 8
  for (int u = lane; u <= t; u += 32) {
    const float datt = load_one(args.datt, start + u);
    store_one(args.dpre, start + u, load_one(args.att, start + u) * (datt * args.scale + offset));
  }
  const int end = args.skip_upper ? sector_end(t, args.T) : static_cast<int>(args.T);
  for (int u = t + 1 + lane; u < end; u += 32) {
    store_one(args.dpre, start + u, 0.0f);
  }
}

namespace {

// A kernel, how many threads of it share a row, and how many a block has.
template <typename Args>
struct Candidate {
  int lanes, packs, threads;
  void (*kernel)(Args);
};

template <typename Args>
Launch launch_rows(const Args &args, const Candidate<Args> &candidate) {
  const int block_rows = candidate.threads / candidate.lanes;
  Launch launch;
  launch.function = reinterpret_cast<const void *>(candidate.kernel);
  launch.block = dim3(candidate.threads);
  launch.grid = dim3(blocks_for(Operation<Args>::name, args.N * args.T, block_rows));
  return launch;
}

// The first that holds a row.
template <typename Args, std::size_t Count>
Launch launch_first(const Args &args, const Candidate<Args> (&candidates)[Count]) {
  const char *const op = Operation<Args>::name;
  require_packs(op, "T", args.T);
  std::int64_t longest = 0;
  for (const Candidate<Args> &candidate : candidates) {
    longest = candidate.lanes * candidate.packs * Pack::size;
    if (args.T <= longest) {
      return launch_rows(args, candidate);
    }
  }
  refuse(op, "T", std::to_string(args.T), "at most " + std::to_string(longest));
}

}  // namespace

Launch configure(const kdvfs_softmax_forward &args, const Limits &, const std::string &variant) {
  require_vector(Operation<kdvfs_softmax_forward>::name, variant);
  const Candidate<kdvfs_softmax_forward> candidates[] = {{32, 4, 64, softmax_forward_kernel<32, 4>},
                                                         {32, 8, 128, softmax_forward_kernel<32, 8>},
                                                         {512, 8, 512, softmax_forward_kernel<512, 8>}};
  return launch_first(args, candidates);
}

Launch configure(const kdvfs_softmax_backward &args, const Limits &, const std::string &variant) {
  if (variant == "scalar") {
    return launch_rows(args, {32, 1, 128, softmax_backward_scalar_kernel});
  }
  if (variant != "vector") {
    refuse(Operation<kdvfs_softmax_backward>::name, "variant", "'" + variant + "'", "'vector' or 'scalar'");
  }
  const Candidate<kdvfs_softmax_backward> candidates[] = {{32, 4, 64, softmax_backward_kernel<32, 4>},
                                                          {32, 8, 128, softmax_backward_kernel<32, 8>},
                                                          {512, 8, 512, softmax_backward_kernel<512, 8>}};
  return launch_first(args, candidates);
}

}  // namespace kdvfs
