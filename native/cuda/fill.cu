#include "kdvfs/fill.hpp"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kdvfs/reduce.cuh"

namespace kdvfs {

namespace {

// 64 random bits of (counter, seed): the finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable
// pseudorandom number generators").
__host__ __device__ inline std::uint64_t random64(std::uint64_t counter, std::uint64_t seed) {
  std::uint64_t x = seed + (counter + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Box and Muller 1958
__device__ float random_normal(std::uint64_t counter, std::uint64_t seed) {
  const std::uint64_t bits = random64(counter, seed);
  const float first = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;  // (0, 1]
  const float second = static_cast<float>(bits & 0xffffff) * 0x1p-24f;     // [0, 1)
  // __logf may say a little more than 0 just below 1
  return sqrtf(fmaxf(0.0f, -2.0f * __logf(first))) * __cosf(6.2831853f * second);
}

__device__ void put(float *tensor, std::int64_t i, float value) { tensor[i] = value; }
__device__ void put(__nv_bfloat16 *tensor, std::int64_t i, float value) { tensor[i] = __float2bfloat16_rn(value); }

}  // namespace

struct Filled {
  std::int64_t row_count, column_count;  // of the last two axes
  std::int64_t rows, columns;            // that get values, the rest is zero
  bool lower;                            // so is what lies above the diagonal
};

// ptx: none b16 - setup only
template <typename T>
__global__ void fill_normal_kernel(T *tensor, std::int64_t size, float mean, float sd, Filled filled,
                                   std::uint64_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += step) {
    const std::int64_t row = i / filled.column_count % filled.row_count, column = i % filled.column_count;
    const bool has_value = row < filled.rows && column < filled.columns && (!filled.lower || column <= row);
    put(tensor, i, has_value ? mean + sd * random_normal(static_cast<std::uint64_t>(i), seed) : 0.0f);
  }
}

// Causal attention: a warp per row of the squares of T x T, softmax of normal scores up to the diagonal.
// ptx: none b16 - setup only
template <typename T>
__global__ void fill_causal_kernel(T *tensor, std::int64_t rows, std::int64_t length, std::uint64_t seed) {
  const int lane = threadIdx.x % 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (blockDim.x / 32);
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32; row < rows;
       row += step) {
    const std::int64_t last = row % length, start = row * length;
    float sum = 0;
    for (std::int64_t u = lane; u <= last; u += 32) {
      sum += __expf(random_normal(static_cast<std::uint64_t>(start + u), seed));
    }
    const float scale = 1.0f / warp_reduce<Sum>(sum);
    for (std::int64_t u = lane; u < length; u += 32) {
      const float value = u <= last ? scale * __expf(random_normal(static_cast<std::uint64_t>(start + u), seed)) : 0.0f;
      put(tensor, start + u, value);
    }
  }
}

namespace {

constexpr int block_threads = 256;

int blocks(std::int64_t threads) {
  return static_cast<int>(std::min<std::int64_t>((threads + block_threads - 1) / block_threads, 1 << 16));
}

template <typename T>
void fill_real(T *data, const DeviceTensor &tensor, std::uint64_t seed, cudaStream_t stream) {
  const std::int64_t columns = tensor.shape.back();
  const Fill &fill = tensor.fill;
  if (fill.kind == Fill::causal) {
    const std::int64_t rows = tensor.size() / columns;
    fill_causal_kernel<<<blocks(32 * rows), block_threads, 0, stream>>>(data, rows, columns, seed);
    return;
  }
  const std::int64_t rows = tensor.shape.size() > 1 ? tensor.shape[tensor.shape.size() - 2] : 1;
  const Filled filled{rows, columns, fill.rows ? fill.rows : rows, fill.columns ? fill.columns : columns,
                      fill.kind == Fill::lower};
  fill_normal_kernel<<<blocks(tensor.size()), block_threads, 0, stream>>>(
      data, tensor.size(), static_cast<float>(fill.mean), static_cast<float>(fill.sd), filled, seed);
}

// Uniform, or by Zipf's law p(id) ~ (id + 1)^-s: ids in the order of their frequency, as in a trained vocabulary.
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocabulary, double zipf_exponent,
                                     std::uint64_t seed) {
  std::vector<double> cumulative;
  if (zipf_exponent >= 0) {
    double sum = 0;
    for (std::int64_t rank = 1; rank <= vocabulary; rank++) {
      cumulative.push_back(sum += std::pow(static_cast<double>(rank), -zipf_exponent));
    }
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); i++) {
    const double uniform = static_cast<double>(random64(i, seed) >> 11) * 0x1p-53;  // [0, 1)
    if (cumulative.empty()) {
      ids[i] = static_cast<std::int32_t>(uniform * static_cast<double>(vocabulary));
    } else {
      const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * cumulative.back());
      ids[i] = static_cast<std::int32_t>(std::min<std::int64_t>(found - cumulative.begin(), vocabulary - 1));
    }
  }
  return ids;
}

// Every tensor has values of its own: by its shared name, or by its name in the operation. FNV-1a.
std::uint64_t seed_of(const DeviceTensor &tensor, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char letter : tensor.shared.empty() ? tensor.tensor : tensor.shared) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
  }
  return random64(hash + static_cast<std::uint64_t>(tensor.set), seed);
}

}  // namespace

void fill(const DeviceTensor &tensor, const FillSettings &settings, const Device &device) {
  const std::string doing = "filling " + tensor.tensor;
  const std::uint64_t seed = seed_of(tensor, settings.seed);
  if (tensor.fill.kind == Fill::zero) {
    check(cudaMemsetAsync(tensor.data, 0, tensor.bytes(), device.stream), doing);
  } else if (tensor.element == Element::int32) {
    const auto ids = random_ids(tensor.size(), tensor.fill.vocabulary, settings.zipf_exponent, seed);
    device.upload(tensor.data, ids.data(), tensor.bytes(), doing);
  } else if (tensor.element == Element::bf16) {
    fill_real(static_cast<__nv_bfloat16 *>(tensor.data), tensor, seed, device.stream);
  } else {
    fill_real(static_cast<float *>(tensor.data), tensor, seed, device.stream);
  }
  check(cudaGetLastError(), doing);
}

}  // namespace kdvfs
