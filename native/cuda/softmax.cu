// Causal softmax over the rows of N squares of T x T, and its gradient. Row t has t + 1 elements in t / 8 + 1 packs, so
// eight neighbouring rows have equally many: a warp takes neighbours, a few lanes each, and hardly any lane idles.
// Whole packs are written; the last one's elements above the diagonal are zeros.
#include <algorithm>

#include "kdvfs/address.cuh"
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/reduce.cuh"
#include "kdvfs/softmax.cuh"
#include "kdvfs/tail.cuh"

namespace kdvfs {

namespace {

constexpr int block_threads = 128;

template <int Lanes>
constexpr int threads_for = Lanes > block_threads ? Lanes : block_threads;

// Over the `Lanes` threads that share a row: part of a warp, or the whole block.
template <int Lanes>
__device__ __forceinline__ float row_sum(float value) {
  if constexpr (Lanes <= 32) {
    return warp_sum<Lanes>(value);
  } else {
    __shared__ float shared[Lanes / 32];
    return block_sum<Lanes / 32>(value, shared);
  }
}

template <int Lanes>
__device__ __forceinline__ float row_max(float value) {
  if constexpr (Lanes <= 32) {
    return warp_max<Lanes>(value);
  } else {
    __shared__ float shared[Lanes / 32];
    return block_max<Lanes / 32>(value, shared);
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

  // The last of `packs` is the one in the crossed stride; cut it before use.
  template <int Packs>
  __device__ __forceinline__ void read(Pack (&packs)[Packs], const void *tensor) const {
    const void *const mine = address_of(tensor, start);
#pragma unroll
    for (int i = 0; i < Packs - 1; i++) {
      if (i < whole) {
        packs[i] = load_streaming(mine, i * stride);
      }
    }
    // a lane above the diagonal reads the row's first pack instead: no branch
    const int lane = threadIdx.x % Lanes;
    packs[Packs - 1] = load_streaming(mine, left > 0 ? crossed : -lane * Pack::size);
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
  row.read(pre, args.pre);
  row.cut(pre, minus_infinities);
  std::uint32_t largest = minus_infinities;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (i < row.whole || i == Packs - 1) {
      raise_to(largest, pre[i]);
    }
  }
  const float scale = args.scale * log2_e;
  const float offset = -scale * row_max<Lanes>(larger_half(largest));
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
  const float norm = 1.0f / row_sum<Lanes>(sum);
  void *const mine = address_of(args.att, row.start);
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (i < row.whole || i == Packs - 1) {
#pragma unroll
      for (float &value : att[i]) {
        value *= norm;
      }
      if (i < Packs - 1) {
        store_streaming(mine, i * row.stride, pack_of(att[i]));
      } else if (row.left > 0) {
        store_streaming(mine, row.crossed, pack_of(att[i]));
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
  row.read(att, args.att);
  row.read(datt, args.datt);

  void *const mine = address_of(args.dpre, row.start);
  const int lane = threadIdx.x % Lanes, end = static_cast<int>(args.T) - lane * Pack::size;
  if (!args.skip_upper) {
#pragma unroll 1
    for (int u = row.crossed + row.stride; u < end; u += row.stride) {
      store_streaming(mine, u, Pack{});
    }
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
  const float offset = -args.scale * row_sum<Lanes>(dot);
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
      if (i < Packs - 1) {
        store_streaming(mine, i * row.stride, pack_of(d));
      } else if (args.skip_upper ? row.left > 0 : row.crossed < end) {
        store_streaming(mine, row.crossed, pack_of(d));
      }
    }
  }
}

// One element a lane, as a kernel without vector accesses would do it; the second pass reads from the cache.
// ptx: none b16 - what this variant is for
__global__ void __launch_bounds__(block_threads) softmax_backward_scalar_kernel(const kdvfs_softmax_backward args) {
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
  const float offset = -args.scale * warp_sum(dot);
#pragma unroll 8
  for (int u = lane; u <= t; u += 32) {
    const float datt = load_one(args.datt, start + u);
    store_one(args.dpre, start + u, load_one(args.att, start + u) * (datt * args.scale + offset));
  }
  const int T = static_cast<int>(args.T), end = args.skip_upper ? min(T, (t / Pack::size + 1) * Pack::size) : T;
  for (int u = t + 1 + lane; u < end; u += 32) {
    store_one(args.dpre, start + u, 0.0f);
  }
}

namespace {

constexpr int forward_packs = 8, backward_packs = 8;

// A kernel and how many threads of it share a row.
template <typename Args>
struct Candidate {
  int lanes, packs;
  void (*kernel)(Args);
};

template <typename Args>
Launch launch_rows(const Args &args, const Candidate<Args> &candidate) {
  const int threads = std::max(candidate.lanes, block_threads), block_rows = threads / candidate.lanes;
  Launch launch;
  launch.function = reinterpret_cast<const void *>(candidate.kernel);
  launch.block = dim3(threads);
  launch.grid = dim3(static_cast<unsigned>((args.N * args.T + block_rows - 1) / block_rows));
  return launch;
}

// The first that holds a row.
template <typename Args, std::size_t Count>
Launch launch_first(const Args &args, const Candidate<Args> (&candidates)[Count]) {
  const char *const op = Operation<Args>::name;
  if (args.T % Pack::size != 0) {
    refuse(op, "T", std::to_string(args.T), "a multiple of 8");
  }
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
  if (variant != "vector") {
    refuse(Operation<kdvfs_softmax_forward>::name, "variant", "'" + variant + "'", "'vector'");
  }
  constexpr int packs = forward_packs;
  const Candidate<kdvfs_softmax_forward> candidates[] = {{16, packs, softmax_forward_kernel<16, packs>},
                                                         {32, packs, softmax_forward_kernel<32, packs>},
                                                         {512, packs, softmax_forward_kernel<512, packs>}};
  return launch_first(args, candidates);
}

Launch configure(const kdvfs_softmax_backward &args, const Limits &, const std::string &variant) {
  if (variant == "scalar") {
    return launch_rows(args, {32, 1, softmax_backward_scalar_kernel});
  }
  if (variant != "vector") {
    refuse(Operation<kdvfs_softmax_backward>::name, "variant", "'" + variant + "'", "'vector' or 'scalar'");
  }
  constexpr int packs = backward_packs;
  const Candidate<kdvfs_softmax_backward> candidates[] = {{16, packs, softmax_backward_kernel<16, packs>},
                                                          {32, packs, softmax_backward_kernel<32, packs>},
                                                          {512, packs, softmax_backward_kernel<512, packs>}};
  return launch_first(args, candidates);
}

}  // namespace kdvfs
