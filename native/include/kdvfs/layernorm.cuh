// The layernorm of a row that lies in registers, for the kernels that end in one.
#pragma once

#include "kdvfs/address.cuh"
#include "kdvfs/row.cuh"

namespace kdvfs {

// Writes out, mean and rstd of a row. `values`: the thread's packs of it, 0 past the row's end.
template <int Packs, typename Args>
__device__ __forceinline__ void write_layernorm(const Args &args, std::int64_t row,
                                                float (&values)[Packs][Pack::size]) {
  __shared__ float shared[2][most_row_threads / 32];
  const int C = static_cast<int>(args.C);
  const int first = first_channel<Packs>();

  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
#pragma unroll
    for (const float value : values[i]) {
      sum += value;
    }
  }
  const float mean = row_sum(sum, shared[0]) / static_cast<float>(C);

  // a second pass over the deviations: E[x^2] - E[x]^2 would cancel when the mean is large
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (first + i * channel_step < C) {
#pragma unroll
      for (float &value : values[i]) {
        value -= mean;
        squares += value * value;
      }
    }
  }
  const float rstd = rsqrtf(row_sum(squares, shared[1]) / static_cast<float>(C) + args.eps);

  const void *const gammas = address_of(args.gamma, first), *const betas = address_of(args.beta, first);
  void *const out = address_of(args.out, row * C + first);
#pragma unroll
  for (int i = 0; i < Packs; i++) {
    if (first + i * channel_step < C) {
      float gamma[Pack::size], beta[Pack::size];
      unpack(load(gammas, i * channel_step), gamma);
      unpack(load(betas, i * channel_step), beta);
#pragma unroll
      for (int j = 0; j < Pack::size; j++) {
        values[i][j] = values[i][j] * rstd * gamma[j] + beta[j];
      }
      store_streaming(out, i * channel_step, pack_of(values[i]));
    }
  }
  if (threadIdx.x == 0) {
    args.mean[row] = mean;
    args.rstd[row] = rstd;
  }
}

}  // namespace kdvfs
