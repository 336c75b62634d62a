// Fused causal attention by cuDNN's graphs for it. A graph is built once, when the plan is made; queries, keys and
// values are read where they lie in one tensor of token order, so nothing is permuted.
#include <algorithm>
#include <string>
#include <unordered_map>

#include "kdvfs/executor.hpp"

#ifdef KDVFS_CUDNN
#include <cudnn_frontend.h>
#endif

namespace kdvfs {

#ifdef KDVFS_CUDNN

namespace {

namespace fe = cudnn_frontend;
using TensorInGraph = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Part { query, key, value };
enum Uid : std::int64_t { q_uid = 1, k_uid, v_uid, out_uid, lse_uid, dout_uid, dq_uid, dk_uid, dv_uid };
using Pointers = std::unordered_map<std::int64_t, void *>;

constexpr std::int64_t element_bytes = 2;  // bf16

// Adds the operation to the graph.
template <typename Args>
void describe(fe::graph::Graph &graph, const Args &args);

// (B, T, NH, HS) as cuDNN counts its axes, (B, NH, T, HS), where `parts` of the kind lie side by side in a token.
template <typename Args>
void lay_out(fe::graph::Tensor_attributes &tensor, const Args &args, Uid uid, std::int64_t parts) {
  const std::int64_t token = parts * args.NH * args.HS;
  tensor.set_uid(uid)
      .set_dim({args.B, args.NH, args.T, args.HS})
      .set_stride({args.T * token, args.HS, token, 1});
}

template <typename Args>
TensorInGraph input(fe::graph::Graph &graph, const Args &args, const char *name, Uid uid, std::int64_t parts) {
  fe::graph::Tensor_attributes tensor;
  lay_out(tensor.set_name(name), args, uid, parts);
  return graph.tensor(tensor);
}

template <typename Args>
void output(const TensorInGraph &tensor, const Args &args, Uid uid, std::int64_t parts) {
  lay_out(tensor->set_output(true), args, uid, parts);
}

// (B, NH, T), float32.
template <typename Args>
fe::graph::Tensor_attributes &lay_out_lse(fe::graph::Tensor_attributes &tensor, const Args &args) {
  return tensor.set_uid(lse_uid)
      .set_dim({args.B, args.NH, args.T, 1})
      .set_stride({args.NH * args.T, args.T, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

template <>
void describe(fe::graph::Graph &graph, const kdvfs_attention_forward &args) {
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_attn_scale(args.scale)
                     .set_causal_mask(true);
  auto [out, lse] = graph.sdpa(input(graph, args, "q", q_uid, 3), input(graph, args, "k", k_uid, 3),
                               input(graph, args, "v", v_uid, 3), options);
  output(out, args, out_uid, 1);
  lay_out_lse(lse->set_output(true), args);
}

template <>
void describe(fe::graph::Graph &graph, const kdvfs_attention_backward &args) {
  // in a fixed order: the same bits at every launch, and on an H200 5 % faster than sums that take what comes
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_name("attention")
                     .set_attn_scale(args.scale)
                     .set_causal_mask(true)
                     .set_deterministic_algorithm(true);
  fe::graph::Tensor_attributes kept;
  const auto lse = graph.tensor(lay_out_lse(kept.set_name("lse"), args));
  auto [dq, dk, dv] = graph.sdpa_backward(input(graph, args, "q", q_uid, 3), input(graph, args, "k", k_uid, 3),
                                          input(graph, args, "v", v_uid, 3), input(graph, args, "out", out_uid, 1),
                                          input(graph, args, "dout", dout_uid, 1), lse, options);
  output(dq, args, dq_uid, 3);
  output(dk, args, dk_uid, 3);
  output(dv, args, dv_uid, 3);
}

void *part_of(const void *qkv, Part part, std::int64_t NH, std::int64_t HS) {
  return const_cast<char *>(static_cast<const char *>(qkv)) + part * NH * HS * element_bytes;
}

Pointers pointers(const kdvfs_attention_forward &args) {
  return {{q_uid, part_of(args.qkv, query, args.NH, args.HS)},
          {k_uid, part_of(args.qkv, key, args.NH, args.HS)},
          {v_uid, part_of(args.qkv, value, args.NH, args.HS)},
          {out_uid, args.out},
          {lse_uid, args.lse}};
}

Pointers pointers(const kdvfs_attention_backward &args) {
  return {{q_uid, part_of(args.qkv, query, args.NH, args.HS)},
          {k_uid, part_of(args.qkv, key, args.NH, args.HS)},
          {v_uid, part_of(args.qkv, value, args.NH, args.HS)},
          {out_uid, const_cast<void *>(args.out)},
          {lse_uid, const_cast<float *>(args.lse)},
          {dout_uid, const_cast<void *>(args.dout)},
          {dq_uid, part_of(args.dqkv, query, args.NH, args.HS)},
          {dk_uid, part_of(args.dqkv, key, args.NH, args.HS)},
          {dv_uid, part_of(args.dqkv, value, args.NH, args.HS)}};
}

void check(fe::error_t status, const std::string &doing) {
  if (status.is_bad()) {
    std::string text = status.get_message();
    std::replace(text.begin(), text.end(), '\n', ' ');
    throw CudaError(doing + ": cuDNN: " + text);
  }
}

void check(cudnnStatus_t status, const std::string &doing) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw CudaError(doing + ": cuDNN: " + cudnnGetErrorString(status));
  }
}

// cuDNN on the device's stream.
struct Handle {
  const Device &device;
  cudnnHandle_t handle = nullptr;

  Handle(const Device &device_, const std::string &name) : device(device_) {
    check(cudnnCreate(&handle), name);
    if (const cudnnStatus_t status = cudnnSetStream(handle, device.stream); status != CUDNN_STATUS_SUCCESS) {
      cudnnDestroy(handle);
      check(status, name);
    }
  }
  ~Handle() {
    cudaSetDevice(device.index);
    cudnnDestroy(handle);
  }
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
};

}  // namespace

template <typename Args>
struct Fused<Args>::Library {
  const std::string name;
  const Handle cudnn;
  fe::graph::Graph graph;
  std::int64_t workspace_bytes = 0;
  std::shared_ptr<Memory> workspace;

  Library(Arena &arena, const Args &args, const std::string &name_) : name(name_), cudnn(*arena.device(), name_) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    describe(graph, args);
    // the first of the library's proposals: the same for every clock, as for products by "heuristic"
    check(graph.build(cudnn.handle, {fe::HeurMode_t::A}), name);
    check(graph.get_workspace_size(workspace_bytes), name);
    workspace = workspace_bytes ? arena.workspace(static_cast<std::size_t>(workspace_bytes)) : nullptr;
  }

  void launch(const Args &args) {
    Pointers tensors = pointers(args);
    fe::error_t status = graph.execute(cudnn.handle, tensors, workspace ? workspace->data() : nullptr);
    if (status.is_bad()) {  // tested here: building the message would cost more than the launch
      check(status, name + ": launch");
    }
  }
};

template <typename Args>
void Fused<Args>::launch(const Args &args) const {
  library_->launch(args);
}

template <typename Args>
Facts Fused<Args>::facts() const {
  std::string plan;
  check(library_->graph.get_plan_name(plan), library_->name);
  return {{"library_plan", plan},
          {"workspace_byte", library_->workspace_bytes},
          {"cudnn", static_cast<std::int64_t>(cudnnGetVersion())}};
}

bool has_fused_attention() { return true; }

#else

bool has_fused_attention() { return false; }

template <typename Args>
struct Fused<Args>::Library {
  Library(Arena &, const Args &, const std::string &) {}
};

template <typename Args>
void Fused<Args>::launch(const Args &) const {}

template <typename Args>
Facts Fused<Args>::facts() const {
  return {};
}

#endif

template <typename Args>
void Fused<Args>::require(const Device &, const Args &args, const Options &options) {
  const char *const op = Operation<Args>::name;
  require_packs(op, "HS", args.HS);
  require_vector(op, options.variant);
  if (options.pinned || options.algorithm != "heuristic") {
    refuse(op, "algorithm", options.pinned ? "a pinned one" : "'" + options.algorithm + "'",
           "none: only gemm has a choice of algorithms");
  }
#ifndef KDVFS_CUDNN
  refuse(op, "the extension", "built without cuDNN",
         "one built with it: pip install nvidia-cudnn-cu13 'nvidia-cudnn-frontend<1.19', then kernel-dvfs build");
#endif
}

template <typename Args>
Fused<Args>::Fused(Arena &arena, const Args &args, const Options &, const std::string &name) {
  const auto turn = arena.device()->enter();
  library_ = std::make_unique<Library>(arena, args, name);
}

template <typename Args>
Fused<Args>::~Fused() = default;

template class Fused<kdvfs_attention_forward>;
template class Fused<kdvfs_attention_backward>;

}  // namespace kdvfs
