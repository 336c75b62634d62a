// Permutations between token order (B, T, parts, NH, HS), in which the projections work, and head order
// (B, NH, T, HS), in which attention works; parts = 3 for q, k, v together, else 1. Nothing but copies.
// Variant `scalar` moves 2 bytes per access instead of 16: eight times the instructions for the same bytes, for the
// study of how clocks act on code that is bound by them.
#include <algorithm>

#include "kdvfs/address.cuh"
#include "kdvfs/describe.hpp"
#include "kdvfs/launch.hpp"

namespace kdvfs {

namespace {

using Vector = uint4;           // eight bf16
using Scalar = unsigned short;  // one bf16

template <typename Access>
constexpr int channels = sizeof(Access) / sizeof(Scalar);

constexpr int block_threads = 256;  // about

// A thread moves the same access (one of the blockDim.x that make up a head's HS channels) of one head of one token.
// The block's x runs over accesses, y over heads, z over tokens, the grid's z over sequences: no division is needed to
// know where one is. Within a sequence, 32 bits suffice.
template <typename Access, int Parts>
struct Work {
  const int T, NH, accesses = blockDim.x;
  const int token = blockIdx.x * blockDim.z + threadIdx.z;
  const int head = blockIdx.y * blockDim.y + threadIdx.y;
  const std::int64_t sequence;  // where it starts, in accesses to one part

  template <typename Args>
  __device__ explicit Work(const Args &args)
      : T(static_cast<int>(args.T)),
        NH(static_cast<int>(args.NH)),
        sequence(std::int64_t{blockIdx.z} * T * NH * accesses) {}

  __device__ bool exists() const { return head < NH && token < T; }

  // The thread's access in a tensor of either order.
  template <typename Tensor>
  __device__ auto in_token_order(Tensor *tensor) const {
    return at(tensor, Parts * sequence + ((token * Parts * NH + head) * accesses + static_cast<int>(threadIdx.x)));
  }
  __device__ int part_step() const { return NH * accesses; }  // from one part to the next, in token order

  template <typename Tensor>
  __device__ auto in_head_order(Tensor *tensor) const {
    return at(tensor, sequence + ((head * T + token) * accesses + static_cast<int>(threadIdx.x)));
  }

 private:
  __device__ static const Access *at(const void *tensor, std::int64_t access) {
    return static_cast<const Access *>(address_of(tensor, access * channels<Access>));
  }
  __device__ static Access *at(void *tensor, std::int64_t access) {
    return static_cast<Access *>(address_of(tensor, access * channels<Access>));
  }
};

// `Parts` tensors in head order, from one in token order.
template <typename Access, int Parts, typename Args>
__device__ __forceinline__ void to_head_order(const Args &args, const void *tokens, void *const (&heads)[Parts]) {
  const Work<Access, Parts> work(args);
  if (!work.exists()) {
    return;
  }
  const Access *const from = work.in_token_order(tokens);
  Access held[Parts];  // all loads before the first store
#pragma unroll
  for (int part = 0; part < Parts; part++) {
    held[part] = __ldcs(from + part * work.part_step());
  }
#pragma unroll
  for (int part = 0; part < Parts; part++) {
    __stcs(work.in_head_order(heads[part]), held[part]);
  }
}

// The inverse.
template <typename Access, int Parts, typename Args>
__device__ __forceinline__ void to_token_order(const Args &args, const void *const (&heads)[Parts], void *tokens) {
  const Work<Access, Parts> work(args);
  if (!work.exists()) {
    return;
  }
  Access held[Parts];
#pragma unroll
  for (int part = 0; part < Parts; part++) {
    held[part] = __ldcs(work.in_head_order(heads[part]));
  }
  Access *const to = work.in_token_order(tokens);
#pragma unroll
  for (int part = 0; part < Parts; part++) {
    __stcs(to + part * work.part_step(), held[part]);
  }
}

template <typename Access, typename Args>
Launch configure_accesses(const Args &args, int parts, void (*kernel)(Args)) {
  const char *const op = Operation<Args>::name;
  if (args.HS % channels<Access> != 0 || args.HS / channels<Access> > 1024) {
    refuse(op, "HS", std::to_string(args.HS),
           "a multiple of " + std::to_string(channels<Access>) + " up to " + std::to_string(1024 * channels<Access>));
  }
  require_at_most(op, "B", args.B, most_blocks_across);
  const std::int64_t accesses = args.HS / channels<Access>;
  const std::int64_t most_tokens = INT32_MAX / (parts * args.NH * accesses);
  if (args.T > most_tokens) {
    refuse(op, "T", std::to_string(args.T),
           "at most " + std::to_string(most_tokens) + ", so that 32 bits index a sequence");
  }
  // whole tokens first: in token order their heads lie side by side
  const std::int64_t heads = std::clamp<std::int64_t>(block_threads / accesses, 1, args.NH);
  const std::int64_t tokens = std::clamp<std::int64_t>(block_threads / (accesses * heads), 1, 64);
  Launch launch;
  launch.function = reinterpret_cast<const void *>(kernel);
  launch.grid = dim3(blocks_for(op, args.T, tokens), blocks_for(op, args.NH, heads, most_blocks_across),
                     static_cast<unsigned>(args.B));
  launch.block = dim3(static_cast<unsigned>(accesses), static_cast<unsigned>(heads), static_cast<unsigned>(tokens));
  return launch;
}

template <typename Args>
Launch configure_permute(const Args &args, int parts, const std::string &variant, void (*vector)(Args),
                         void (*scalar)(Args)) {
  if (variant == "vector") {
    return configure_accesses<Vector>(args, parts, vector);
  }
  if (variant == "scalar") {
    return configure_accesses<Scalar>(args, parts, scalar);
  }
  refuse(Operation<Args>::name, "variant", "'" + variant + "'", "'vector' or 'scalar'");
}

template <typename Access>
__device__ __forceinline__ void permute_qkv_forward(const kdvfs_permute_qkv_forward &args) {
  void *const heads[3] = {args.q, args.k, args.v};
  to_head_order<Access>(args, args.inp, heads);
}

template <typename Access>
__device__ __forceinline__ void permute_qkv_backward(const kdvfs_permute_qkv_backward &args) {
  const void *const heads[3] = {args.dq, args.dk, args.dv};
  to_token_order<Access>(args, heads, args.dinp);
}

template <typename Access>
__device__ __forceinline__ void permute_heads_forward(const kdvfs_permute_heads_forward &args) {
  const void *const heads[1] = {args.inp};
  to_token_order<Access>(args, heads, args.out);
}

template <typename Access>
__device__ __forceinline__ void permute_heads_backward(const kdvfs_permute_heads_backward &args) {
  void *const heads[1] = {args.dinp};
  to_head_order<Access>(args, args.dout, heads);
}

}  // namespace

// ptx: ld.v4 st.v4
__global__ void permute_qkv_forward_kernel(const kdvfs_permute_qkv_forward args) { permute_qkv_forward<Vector>(args); }

// ptx: none b16 - what the variant is for
__global__ void permute_qkv_forward_scalar_kernel(const kdvfs_permute_qkv_forward args) {
  permute_qkv_forward<Scalar>(args);
}

Launch configure(const kdvfs_permute_qkv_forward &args, const Limits &, const std::string &variant) {
  return configure_permute(args, 3, variant, permute_qkv_forward_kernel, permute_qkv_forward_scalar_kernel);
}

// ptx: ld.v4 st.v4
__global__ void permute_qkv_backward_kernel(const kdvfs_permute_qkv_backward args) {
  permute_qkv_backward<Vector>(args);
}

// ptx: none b16 - what the variant is for
__global__ void permute_qkv_backward_scalar_kernel(const kdvfs_permute_qkv_backward args) {
  permute_qkv_backward<Scalar>(args);
}

Launch configure(const kdvfs_permute_qkv_backward &args, const Limits &, const std::string &variant) {
  return configure_permute(args, 3, variant, permute_qkv_backward_kernel, permute_qkv_backward_scalar_kernel);
}

// ptx: ld.v4 st.v4
__global__ void permute_heads_forward_kernel(const kdvfs_permute_heads_forward args) {
  permute_heads_forward<Vector>(args);
}

// ptx: none b16 - what the variant is for
__global__ void permute_heads_forward_scalar_kernel(const kdvfs_permute_heads_forward args) {
  permute_heads_forward<Scalar>(args);
}

Launch configure(const kdvfs_permute_heads_forward &args, const Limits &, const std::string &variant) {
  return configure_permute(args, 1, variant, permute_heads_forward_kernel, permute_heads_forward_scalar_kernel);
}

// ptx: ld.v4 st.v4
__global__ void permute_heads_backward_kernel(const kdvfs_permute_heads_backward args) {
  permute_heads_backward<Vector>(args);
}

// ptx: none b16 - what the variant is for
__global__ void permute_heads_backward_scalar_kernel(const kdvfs_permute_heads_backward args) {
  permute_heads_backward<Scalar>(args);
}

Launch configure(const kdvfs_permute_heads_backward &args, const Limits &, const std::string &variant) {
  return configure_permute(args, 1, variant, permute_heads_backward_kernel, permute_heads_backward_scalar_kernel);
}

}  // namespace kdvfs
