// Layernorm over the C channels of each of M rows, forward and backward (Ba, Kiros, Hinton 2016, arXiv 1607.06450).
// A row lies in registers from its one load to its one store. Backward, each thread also keeps its channels' sums for
// dgamma and dbeta there: one block an SM takes row after row, then all blocks meet and sum up their partial sums.
#include <iterator>

#include "kdvfs/describe.hpp"
#include "kdvfs/grid_barrier.cuh"
#include "kdvfs/launch.hpp"
#include "kdvfs/layernorm.cuh"

namespace kdvfs {

// ptx: ld.v4 st.v4
template <int Packs>
__global__ void __launch_bounds__(most_row_threads) layernorm_forward_kernel(const kdvfs_layernorm_forward args) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= args.M) {  // all threads of the row: its barriers are its own
    return;
  }
  const int C = static_cast<int>(args.C), first = first_channel<Packs>();
  const void *const from = address_of(args.inp, row * C + first);
  Pack inp[Packs];
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    inp[i] = first + i * channel_step < C ? load_streaming(from, i * channel_step) : Pack{};
  }
  float values[Packs][Pack::size];
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    unpack(inp[i], values[i]);
  }
  write_layernorm(args, row, values);
}

namespace {
constexpr int forward_packs = 4, forward_threads = 256;
}

Launch configure(const kdvfs_layernorm_forward &args, const Limits &, const std::string &variant) {
  const char *const op = Operation<kdvfs_layernorm_forward>::name;
  require_vector(op, variant);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(&layernorm_forward_kernel<forward_packs>);
  launch.block = block_of_rows(op, args.C, forward_packs, forward_threads);
  launch.grid = dim3(blocks_for(op, args.M, launch.block.y));
  return launch;
}

namespace {

// Scratch: the barrier, then one partial sum for each block, (blocks, 2, C), dgamma then dbeta.
constexpr std::size_t barrier_bytes = 256;

__device__ __forceinline__ void add(float4 &sum, const float4 &more) {
  sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
}

__device__ __forceinline__ void put(float4 *to, const float (&values)[Pack::size]) {
  to[0] = make_float4(values[0], values[1], values[2], values[3]);
  to[1] = make_float4(values[4], values[5], values[6], values[7]);
}

// The block's partial sum: that of its rows, each in its own threads, in their order.
template <int Packs>
__device__ __forceinline__ void leave_partial(float4 *partial, float4 *shared, int C, int first,
                                              const float (&dgamma)[Packs][Pack::size],
                                              const float (&dbeta)[Packs][Pack::size]) {
  const int quads = 2 * C / 4;
  float4 *const own = blockDim.y == 1 ? partial : shared + threadIdx.y * quads;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    const int c = first + i * channel_step;
    if (c < C) {
      put(own + c / 4, dgamma[i]);
      put(own + (C + c) / 4, dbeta[i]);
    }
  }
  if (blockDim.y > 1) {
    __syncthreads();
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < quads; i += blockDim.x * blockDim.y) {
      float4 sum = shared[i];
      for (unsigned y = 1; y < blockDim.y; y++) {
        add(sum, shared[y * quads + i]);
      }
      partial[i] = sum;
    }
  }
}

// What is computed from the pack is computed again.
__device__ __forceinline__ void forget(Pack &pack) {
  asm volatile("" : "+r"(pack.bits.x), "+r"(pack.bits.y), "+r"(pack.bits.z), "+r"(pack.bits.w));
}

// dgamma_out and dbeta_out from the partial sums of all blocks: each block takes a share of the columns, and its
// threads some of the partials each, in an order that the launch alone decides.
__device__ __forceinline__ void finish_weights(const kdvfs_layernorm_backward &args, const float4 *partials,
                                               float4 *shared) {
  const int C = static_cast<int>(args.C), quads = 2 * C / 4, blocks = static_cast<int>(gridDim.x);
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
  const int share = (quads / 2 + blocks - 1) / blocks * 2, width = min(share, threads), height = threads / width;
  const int x = thread % width, y = thread / width;
  const int end = min(quads, (static_cast<int>(blockIdx.x) + 1) * share);
  for (int start = blockIdx.x * share; start < end; start += width) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (y < height && start + x < end) {
#pragma unroll 4
      for (int block = y; block < blocks; block += height) {
        add(sum, __ldcg(partials + static_cast<std::int64_t>(block) * quads + start + x));
      }
    }
    shared[thread] = sum;
    __syncthreads();
    const int quad = start + 2 * thread;
    if (2 * thread < width && quad < end) {
      float4 low = shared[2 * thread], high = shared[2 * thread + 1];
      for (int row = 1; row < height; row++) {
        add(low, shared[row * width + 2 * thread]);
        add(high, shared[row * width + 2 * thread + 1]);
      }
      const bool gamma = quad < quads / 2;
      const int channel = 4 * (gamma ? quad : quad - quads / 2);
      float given[Pack::size];
      unpack(load(gamma ? args.dgamma_in : args.dbeta_in, channel), given);
      const float sums[Pack::size] = {given[0] + low.x,  given[1] + low.y,  given[2] + low.z,  given[3] + low.w,
                                      given[4] + high.x, given[5] + high.y, given[6] + high.z, given[7] + high.w};
      store(gamma ? args.dgamma_out : args.dbeta_out, channel, pack_of(sums));
    }
    __syncthreads();
  }
}

}  // namespace

// How rows come into registers: the next while one is worked on, one after the other, or each once for its sums and
// once more for its gradient. The wider a row, the fewer registers there are for that.
enum Reading { one_ahead, one_by_one, twice };

// ptx: ld.v4 st.v4
template <int Packs, int Threads, Reading reading>
__global__ void __launch_bounds__(Threads, 1)
    layernorm_backward_kernel(const kdvfs_layernorm_backward args, void *scratch) {
  extern __shared__ float4 dynamic[];
  __shared__ float2 shared[2][most_row_threads / 32];
  const int C = static_cast<int>(args.C), first = first_channel<Packs>();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const float share = 1.0f / static_cast<float>(C);
  const auto inside = [&](int i) { return first + i * channel_step < C; };

  // A pack past the row's end is never loaded and stays 0, so that it counts for nothing.
  Pack dout[Packs] = {}, inp[Packs] = {}, bypass[Packs] = {}, gamma[Packs] = {};
  const auto read_row = [&](std::int64_t row) {
    const std::int64_t start = row * C + first;
    const void *const douts = address_of(args.dout, start), *const inps = address_of(args.inp, start);
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      if (inside(i)) {
        dout[i] = load_streaming(douts, i * channel_step);
        inp[i] = load_streaming(inps, i * channel_step);
      }
    }
    const void *const bypasses = address_of(args.dinp_in, start);
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      if (inside(i)) {
        bypass[i] = load_streaming(bypasses, i * channel_step);
      }
    }
  };
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (reading == one_ahead && inside(i)) {
      gamma[i] = load(args.gamma, first + i * channel_step);
    }
  }

  const auto normalise = [&](int i, auto &values, auto &norm, auto &dnorm, float rstd, float offset) {
    float weights[Pack::size];
    if (reading != one_ahead) {
      gamma[i] = inside(i) ? load(args.gamma, first + i * channel_step) : Pack{};
    }
    unpack(dout[i], values);
    unpack(inp[i], norm);
    unpack(gamma[i], weights);
#pragma unroll
    for (int j = 0; j < Pack::size; j++) {
      norm[j] = norm[j] * rstd + offset;
      dnorm[j] = values[j] * weights[j];
    }
  };

  float dgamma[Packs][Pack::size] = {}, dbeta[Packs][Pack::size] = {};
  float mean = 0.0f, rstd = 0.0f;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row < args.M) {
    if (reading != twice) {
      mean = args.mean[row], rstd = args.rstd[row];
      read_row(row);
    }
  }
  for (int turn = 0; row < args.M; turn ^= 1) {
    float norm[Packs][Pack::size], dnorm[Packs][Pack::size], sums[2] = {};
    if (reading == twice) {
      mean = args.mean[row], rstd = args.rstd[row];
    }
    const float scale = rstd, offset = -mean * rstd;
    const std::int64_t next = row + step;
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      float values[Pack::size];
      if (reading == twice) {
        dout[i] = inp[i] = Pack{};  // rather than hold zeros in registers
        if (inside(i)) {
          dout[i] = load_streaming(args.dout, row * C + first + i * channel_step);
          inp[i] = load_streaming(args.inp, row * C + first + i * channel_step);
        }
        __syncwarp();  // no loads across it: their registers are needed
      }
      normalise(i, values, norm[i], dnorm[i], scale, offset);
#pragma unroll
      for (int j = 0; j < Pack::size; j++) {
        sums[0] += dnorm[i][j];
        sums[1] += dnorm[i][j] * norm[i][j];
        dgamma[i][j] += values[j] * norm[i][j];
        dbeta[i][j] += values[j];
      }
    }
    Pack now[Packs];
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      now[i] = bypass[i];
    }
    if (reading != twice && next < args.M) {
      mean = args.mean[next], rstd = args.rstd[next];
      if (reading == one_ahead) {
        read_row(next);
      }
    }

    // norm has mean 0 and variance 1 whatever inp is, so two directions of its gradient have no effect on inp: the
    // constant one and the one along norm. Both averages are taken out:
    // dinp = rstd * (dnorm - mean(dnorm) - norm * mean(dnorm * norm))
    row_sums(sums, shared[turn]);
    const float constant = -scale * share * sums[0], per_norm = -scale * share * sums[1];
    void *const to = address_of(args.dinp_out, row * C + first);
#pragma unroll
    for (int i = 0; i < Packs; i++) {
      if (reading == twice) {
        __syncwarp();
        dout[i] = inp[i] = now[i] = Pack{};
        if (inside(i)) {
          now[i] = load_streaming(args.dinp_in, row * C + first + i * channel_step);
          dout[i] = load_streaming(args.dout, row * C + first + i * channel_step);
          inp[i] = load_streaming(args.inp, row * C + first + i * channel_step);
        }
      }
      if (reading == one_by_one) {
        forget(dout[i]);
        forget(inp[i]);
      }
      if (reading != one_ahead) {  // rather than keep them in registers
        float values[Pack::size];
        normalise(i, values, norm[i], dnorm[i], scale, offset);
      }
      float dinp[Pack::size];
      unpack(now[i], dinp);
#pragma unroll
      for (int j = 0; j < Pack::size; j++) {
        dinp[j] += dnorm[i][j] * scale + (norm[i][j] * per_norm + constant);
      }
      if (inside(i)) {
        store_streaming(to, i * channel_step, pack_of(dinp));
      }
    }
    if (reading == one_by_one && next < args.M) {
      read_row(next);
    }
    row = next;
  }

  auto *const barrier = static_cast<GridBarrier *>(scratch);
  auto *const partials = reinterpret_cast<float4 *>(static_cast<char *>(scratch) + barrier_bytes);
  leave_partial<Packs>(partials + blockIdx.x * (args.C / 2), dynamic, C, first, dgamma, dbeta);
  const unsigned left = wait_for_grid(barrier, gridDim.x);
  finish_weights(args, partials, dynamic);
  leave_grid(barrier, gridDim.x, left);
}

namespace {

// Of `packs` packs a thread, up to `threads` threads a block; the narrower its rows, the faster. Each can be asked for by
// its name as the variant, so that experiments/benchmarks/gpu_kernels.py shows that each is worth having.
struct BackwardCandidate {
  const char *variant;
  int packs, threads;
  void (*kernel)(kdvfs_layernorm_backward, void *);

  std::int64_t longest() const { return std::int64_t{packs} * threads * Pack::size; }
};
const BackwardCandidate backward_candidates[] = {{"one_ahead", 2, 384, layernorm_backward_kernel<2, 384, one_ahead>},
                                                 {"one_by_one", 4, 384, layernorm_backward_kernel<4, 384, one_by_one>},
                                                 {"twice", 4, 512, layernorm_backward_kernel<4, 512, twice>}};

// "vector": the first that holds a row, for the longest rows the last.
const BackwardCandidate &candidate_for(const char *op, std::int64_t C, const std::string &variant) {
  for (const BackwardCandidate &candidate : backward_candidates) {
    if (variant == candidate.variant) {
      require_at_most(op, "C", C, candidate.longest());
    }
    if (variant == candidate.variant || (variant == "vector" && C <= candidate.longest())) {
      return candidate;
    }
  }
  if (variant != "vector") {
    refuse(op, "variant", "'" + variant + "'", "'vector', 'one_ahead', 'one_by_one' or 'twice'");
  }
  return *std::prev(std::end(backward_candidates));  // block_of_rows refuses what is too long for it
}

// For the sums of a block's rows, and for those of the blocks.
inline std::size_t backward_shared_bytes(std::int64_t C, dim3 block) {
  const std::size_t rows = block.y > 1 ? block.y * 2 * static_cast<std::size_t>(C) * sizeof(float) : 0;
  return std::max<std::size_t>(rows, block.x * block.y * sizeof(float4));
}

}  // namespace

Launch configure(const kdvfs_layernorm_backward &args, const Limits &limits, const std::string &variant) {
  const char *const op = Operation<kdvfs_layernorm_backward>::name;
  const BackwardCandidate &candidate = candidate_for(op, args.C, variant);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(candidate.kernel);
  launch.block = block_of_rows(op, args.C, candidate.packs, candidate.threads);
  launch.shared_bytes = backward_shared_bytes(args.C, launch.block);
  // one block for each SM: every block more is a partial sum more
  const std::int64_t filled = (args.M + launch.block.y - 1) / launch.block.y;
  launch.grid = dim3(static_cast<unsigned>(std::min<std::int64_t>(limits.sm_count, filled)));
  launch.scratch_bytes = barrier_bytes + launch.grid.x * 2 * static_cast<std::size_t>(args.C) * sizeof(float);
  launch.cooperative = true;
  return launch;
}

}  // namespace kdvfs
