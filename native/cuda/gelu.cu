// GELU in its tanh form and its gradient (Hendrycks, Gimpel 2016, arXiv 1606.08415), element by element.
// With 2u = 2 sqrt(2/pi) (x + 0.044715 x^3) and the logistic function s = 1 / (1 + exp(-2u)), (1 + tanh u) / 2 is s:
//   gelu = x s,   gelu' = s + x s (1 - s) (2u)'
// so one exponential and one reciprocal make both, and far below 0, where 1 + tanh u cancels, s stays accurate.
#include "kdvfs/address.cuh"
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/pack.cuh"

namespace kdvfs {

namespace {

constexpr int block_threads = 128;
constexpr int packs_per_thread = 2;  // loads of 16 bytes in flight, from each input
constexpr int block_packs = block_threads * packs_per_thread;
constexpr int pack_step = block_threads * Pack::size;  // elements from one of a thread's packs to the next

constexpr float slope = 2 * 0.797884560802865356f;  // 2u = slope * (x + cubic * x^3)
constexpr float cubic = 0.044715f;
constexpr float log2_e = 1.44269504088896341f;

// s, given x^2; exp2f and the division are one instruction each under --use_fast_math
__device__ __forceinline__ float logistic(float x, float x_squared) {
  const float minus_2u_log2_e = x * (-slope * log2_e + (-slope * log2_e * cubic) * x_squared);
  return __fdividef(1.0f, 1.0f + exp2f(minus_2u_log2_e));
}

__device__ __forceinline__ float gelu(float x) { return x * logistic(x, x * x); }

__device__ __forceinline__ float gelu_slope(float x) {
  const float x_squared = x * x;
  const float s = logistic(x, x_squared);
  const float two_u_slope = slope + (3 * slope * cubic) * x_squared;
  return s + s * (x - x * s) * two_u_slope;
}

// What one thread works on: packs `block_threads` apart, so that a warp's accesses are contiguous.
struct Work {
  std::int64_t element;  // first of its first pack
  std::int64_t left;     // packs from there to the end of the tensor
};

__device__ __forceinline__ Work work_of_this_thread(std::int64_t elements) {
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * block_packs + threadIdx.x;
  return {pack * Pack::size, elements / Pack::size - pack};
}

}  // namespace

// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(block_threads) gelu_forward_kernel(const kdvfs_gelu_forward args) {
  const Work work = work_of_this_thread(args.M * args.C);
  const void *const inp = address_of(args.inp, work.element);
  void *const out = address_of(args.out, work.element);
  Pack packs[packs_per_thread];
#pragma unroll
  for (int i = 0; i < packs_per_thread; i++) {
    if (i * block_threads < work.left) {
      packs[i] = load_streaming(inp, i * pack_step);
    }
  }
#pragma unroll
  for (int i = 0; i < packs_per_thread; i++) {
    if (i * block_threads < work.left) {
      float values[Pack::size];
      unpack(packs[i], values);
#pragma unroll
      for (float &value : values) {
        value = gelu(value);
      }
      store_streaming(out, i * pack_step, pack_of(values));
    }
  }
}

// ptx: ld.v4 st.v4
__global__ void __launch_bounds__(block_threads) gelu_backward_kernel(const kdvfs_gelu_backward args) {
  const Work work = work_of_this_thread(args.M * args.C);
  const void *const inp = address_of(args.inp, work.element), *const dout = address_of(args.dout, work.element);
  void *const dinp = address_of(args.dinp, work.element);
  Pack inputs[packs_per_thread], gradients[packs_per_thread];
#pragma unroll
  for (int i = 0; i < packs_per_thread; i++) {
    if (i * block_threads < work.left) {
      inputs[i] = load_streaming(inp, i * pack_step);
      gradients[i] = load_streaming(dout, i * pack_step);
    }
  }
#pragma unroll
  for (int i = 0; i < packs_per_thread; i++) {
    if (i * block_threads < work.left) {
      float x[Pack::size], d[Pack::size];
      unpack(inputs[i], x);
      unpack(gradients[i], d);
#pragma unroll
      for (int j = 0; j < Pack::size; j++) {
        d[j] *= gelu_slope(x[j]);
      }
      store_streaming(dinp, i * pack_step, pack_of(d));
    }
  }
}

namespace {

template <typename Args>
Launch configure_elementwise(const Args &args, const std::string &variant, void (*kernel)(Args)) {
  const char *const op = Operation<Args>::name;
  require_vector(op, variant);
  require_packs(op, "C", args.C);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(kernel);
  launch.grid = dim3(blocks_for(op, args.M * args.C / Pack::size, block_packs));
  launch.block = dim3(block_threads);
  return launch;
}

}  // namespace

Launch configure(const kdvfs_gelu_forward &args, const Limits &, const std::string &variant) {
  return configure_elementwise(args, variant, gelu_forward_kernel);
}

Launch configure(const kdvfs_gelu_backward &args, const Limits &, const std::string &variant) {
  return configure_elementwise(args, variant, gelu_backward_kernel);
}

}  // namespace kdvfs
