// Residual addition and the layernorm that follows it, in one pass: the sum is normalised while it lies in registers.
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"
#include "kdvfs/layernorm.cuh"

namespace kdvfs {

namespace {

constexpr int packs_per_thread = 4, block_threads = 256;

// Rounds as a float32 sum does that is then rounded to bf16: where float32 rounds at all, one summand is below 2^-15
// of the other, too small to change which bf16 is nearest.
__device__ __forceinline__ Pack sum_of(const Pack &a, const Pack &b) {
  const auto add = [](std::uint32_t x, std::uint32_t y) {
    const __nv_bfloat162 sum =
        __hadd2(reinterpret_cast<const __nv_bfloat162 &>(x), reinterpret_cast<const __nv_bfloat162 &>(y));
    return reinterpret_cast<const std::uint32_t &>(sum);
  };
  return {
      make_uint4(add(a.bits.x, b.bits.x), add(a.bits.y, b.bits.y), add(a.bits.z, b.bits.z), add(a.bits.w, b.bits.w))};
}

}  // namespace

// ptx: ld.v4 st.v4
template <int Packs>
__global__ void __launch_bounds__(most_row_threads) residual_layernorm_kernel(const kdvfs_residual_layernorm args) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= args.M) {  // all threads of the row: its barriers are its own
    return;
  }
  const int C = static_cast<int>(args.C), first = first_channel<Packs>();
  const std::int64_t start = row * C + first;
  const void *const from_a = address_of(args.a, start), *const from_b = address_of(args.b, start);
  Pack a[Packs], b[Packs];
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    const bool inside = first + i * channel_step < C;
    a[i] = inside ? load_streaming(from_a, i * channel_step) : Pack{};
    b[i] = inside ? load_streaming(from_b, i * channel_step) : Pack{};
  }
  void *const to_sum = address_of(args.sum, start);
  float values[Packs][Pack::size];
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    const Pack sum = sum_of(a[i], b[i]);
    if (first + i * channel_step < C) {
      store_streaming(to_sum, i * channel_step, sum);
    }
    unpack(sum, values[i]);
  }
  write_layernorm(args, row, values);
}

Launch configure(const kdvfs_residual_layernorm &args, const Limits &, const std::string &variant) {
  const char *const op = Operation<kdvfs_residual_layernorm>::name;
  require_vector(op, variant);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(&residual_layernorm_kernel<packs_per_thread>);
  launch.block = block_of_rows(op, args.C, packs_per_thread, block_threads);
  launch.grid = dim3(blocks_for(op, args.M, launch.block.y));
  return launch;
}

}  // namespace kdvfs
