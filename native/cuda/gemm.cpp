// Matrix products by cuBLASLt. Descriptor, layouts, workspace and algorithm are made once: an algorithm chosen anew
// at another clock would make a clock sweep compare different kernels.
//
// cuBLASLt counts column by column, our tensors row by row, so it is asked for the transposed product:
// d^T (N, M) = op(b^T) op(a^T), with b as its first factor and a as its second.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kdvfs/blas.hpp"
#include "kdvfs/executor.hpp"
#include "kdvfs/stream.hpp"

namespace kdvfs {

namespace {

constexpr std::size_t workspace_bytes = 32u << 20;  // as llm.c
// "timed": every proposal of the library for a moment, then the best of them in turn, as they run on and on: at the
// power limit. The clock of a board that was at rest swings, most in the first second, and takes some 100 ms to follow
// from one algorithm to the next: neither is counted. Windows of 0.2 s were still wrong by up to 2 %.
constexpr int proposals = 40, finalists = 8;
constexpr double first_round_ms = 8, warm_ms = 1000;
// keep: those that take at most so many times as long as the fastest go on
struct Round {
  double settle_ms, counted_ms, keep;
};
constexpr Round final_rounds[] = {{80, 120, 1.025}, {150, 650, 1}};

// Only reductions through the workspace in float32: the same bits at every launch.
constexpr std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

// Handles of cuBLASLt, destroyed with their owner.
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  ~Owned() {
    if (handle) {
      destroy(handle);
    }
  }
  Owned(const Owned &) = delete;
  Owned &operator=(const Owned &) = delete;
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// A pinned algorithm outside of the process: valid for the same cuBLASLt, checked when it comes back.
struct Pinned {
  std::uint64_t library;
  std::int32_t compute_capability, sm_count;
  cublasLtMatmulAlgo_t algorithm;
};

std::int32_t compute_capability(const Device &device) { return 10 * device.properties.major + device.properties.minor; }

template <typename T>
T config(const cublasLtMatmulAlgo_t &algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : T{};
}

}  // namespace

struct Executor<kdvfs_gemm>::Product {
  const Device &device;
  const std::string name;
  const kdvfs_gemm shape;  // with the bias's place, which is part of the description
  Description description;
  Layout first, second, result;
  std::shared_ptr<Memory> workspace;
  cublasLtMatmulHeuristicResult_t chosen{};
  std::string chosen_by;
  int proposed = 0, rank = 0;

  Product(Arena &arena, const kdvfs_gemm &args, const Options &options, const std::string &name_)
      : device(*arena.device()), name(name_), shape(args), workspace(arena.workspace(workspace_bytes)) {
    const auto turn = device.enter();
    describe();
    const bool timed = options.algorithm == "timed";
    if (options.pinned) {
      recall(*options.pinned);
    } else if (const auto known = device.timed_products.find(name); timed && known != device.timed_products.end()) {
      recall(known->second.pinned);
      chosen_by = "timed", rank = known->second.rank, proposed = known->second.proposed;
    } else {
      choose(args, timed);
      if (timed) {
        device.timed_products[name] = {pinned(), rank, proposed};
      }
    }
  }

  std::string pinned() const {
    const Pinned kept{cublasLtGetVersion(), compute_capability(device), device.limits.sm_count, chosen.algo};
    return {reinterpret_cast<const char *>(&kept), sizeof kept};
  }

  void describe() {
    const auto count = static_cast<std::int32_t>(shape.count);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(cublasLtMatmulDescCreate(&description.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), name);
    if (shape.layout == KDVFS_TN) {
      set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    } else if (shape.layout == KDVFS_NT) {
      set(CUBLASLT_MATMUL_DESC_TRANSB, transposed);
    }
    if (shape.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, shape.bias);
    }
    const bool b_by_rows = shape.layout == KDVFS_TN, a_by_columns = shape.layout == KDVFS_NT;
    lay_out(first, b_by_rows ? shape.K : shape.N, b_by_rows ? shape.N : shape.K, count);
    lay_out(second, a_by_columns ? shape.M : shape.K, a_by_columns ? shape.K : shape.M, count);
    lay_out(result, shape.N, shape.M, count);
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T &value) {
    check(cublasLtMatmulDescSetAttribute(description.handle, attribute, &value, sizeof value), name);
  }

  // A dense matrix of `rows` x `columns`, column by column, `count` of them one after the other.
  void lay_out(Layout &layout, std::int64_t rows, std::int64_t columns, std::int32_t count) {
    const std::int64_t stride = rows * columns;
    check(cublasLtMatrixLayoutCreate(&layout.handle, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          name);
    check(cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
          name);
    check(cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                           sizeof stride),
          name);
  }

  void choose(const kdvfs_gemm &args, bool timed) {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(&preference.handle), name);
    check(cublasLtMatmulPreferenceSetAttribute(preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace_bytes, sizeof workspace_bytes),
          name);
    check(cublasLtMatmulPreferenceSetAttribute(preference.handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                               &reductions, sizeof reductions),
          name);
    std::vector<cublasLtMatmulHeuristicResult_t> found(timed ? proposals : 1);
    check(cublasLtMatmulAlgoGetHeuristic(device.blas, description.handle, first.handle, second.handle, result.handle,
                                         result.handle, preference.handle, static_cast<int>(found.size()), found.data(),
                                         &proposed),
          name + ": choice of an algorithm");
    if (proposed == 0) {
      refuse("gemm", "shape", name, "one that cuBLASLt has an algorithm for");
    }
    found.resize(static_cast<std::size_t>(proposed));
    const auto unfit = [](const cublasLtMatmulHeuristicResult_t &one) { return one.state != CUBLAS_STATUS_SUCCESS; };
    found.erase(std::remove_if(found.begin(), found.end(), unfit), found.end());
    if (found.empty()) {
      refuse("gemm", "shape", name, "one that cuBLASLt has an algorithm for");
    }
    rank = timed ? fastest(args, found) : 0;
    chosen = found[static_cast<std::size_t>(rank)];
    chosen_by = timed ? "timed" : "heuristic";
  }

  // Place of the fastest of the proposals.
  int fastest(const kdvfs_gemm &args, const std::vector<cublasLtMatmulHeuristicResult_t> &found) {
    const auto algorithm = [&](int i) { return found[static_cast<std::size_t>(i)].algo; };
    std::vector<std::pair<double, int>> times;
    for (int i = 0; i < static_cast<int>(found.size()); i++) {
      try {
        times.emplace_back(time_ms(args, algorithm(i), first_round_ms), i);
      } catch (const CudaError &) {
        // proposed, but it does not run: the others may
      }
    }
    if (times.empty()) {
      refuse("gemm", "shape", name, "one that an algorithm of cuBLASLt runs on this GPU");
    }
    std::sort(times.begin(), times.end());
    times.resize(std::min<std::size_t>(times.size(), finalists));
    if (times.size() == 1) {
      return times.front().second;
    }
    time_ms(args, algorithm(times.front().second), warm_ms);
    for (const Round &round : final_rounds) {
      if (times.size() == 1) {
        break;
      }
      for (auto &[ms, i] : times) {
        time_ms(args, algorithm(i), round.settle_ms);
        ms = time_ms(args, algorithm(i), round.counted_ms);
      }
      std::sort(times.begin(), times.end());
      const double most_ms = round.keep * times.front().first;
      times.erase(std::find_if(times.begin(), times.end(), [=](const auto &one) { return one.first > most_ms; }),
                  times.end());
    }
    return times.front().second;
  }

  double time_ms(const kdvfs_gemm &args, const cublasLtMatmulAlgo_t &algorithm, double round_ms) {
    Stopwatch watch(device);
    multiply(args, algorithm);
    watch.start();
    multiply(args, algorithm);
    const int n = std::max(3, static_cast<int>(round_ms / std::max(1e-3, watch.stop_ms())));
    watch.start();
    for (int i = 0; i < n; i++) {
      multiply(args, algorithm);
    }
    return watch.stop_ms() / n;
  }

  void recall(const std::string &bytes) {
    Pinned kept;
    std::memcpy(&kept, bytes.data(), sizeof kept);
    if (kept.library != cublasLtGetVersion()) {
      refuse("gemm", "algorithm", "of cuBLASLt " + std::to_string(kept.library),
             "one of cuBLASLt " + std::to_string(cublasLtGetVersion()) + ": choose it again");
    }
    if (kept.compute_capability != compute_capability(device) || kept.sm_count != device.limits.sm_count) {
      refuse("gemm", "algorithm", "of another GPU model", "one that was chosen on this GPU model: choose it again");
    }
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(device.blas, description.handle, first.handle, second.handle,
                                                          result.handle, result.handle, &kept.algorithm, &chosen);
    if (status != CUBLAS_STATUS_SUCCESS || chosen.workspaceSize > workspace_bytes) {
      refuse("gemm", "algorithm", std::string("not fit for ") + name, "one that was chosen for this shape and GPU");
    }
    chosen.algo = kept.algorithm;
    chosen_by = "pinned";
  }

  void multiply(const kdvfs_gemm &args, const cublasLtMatmulAlgo_t &algorithm) {
    const float alpha = 1, beta = args.accumulate ? 1 : 0;
    const void *c = args.accumulate ? args.c : args.d;
    const cublasStatus_t status = cublasLtMatmul(device.blas, description.handle, &alpha, args.b, first.handle, args.a,
                                                 second.handle, &beta, c, result.handle, args.d, result.handle,
                                                 &algorithm, workspace->data(), workspace_bytes, device.stream);
    if (status != CUBLAS_STATUS_SUCCESS) {  // tested here: building the message would cost more than the launch
      check(status, name + ": launch");
    }
  }
};

void Executor<kdvfs_gemm>::require(const Device &, const kdvfs_gemm &, const Options &options) {
  if (options.variant != "vector") {
    refuse("gemm", "variant", "'" + options.variant + "'", "'vector': other products are other algorithms");
  }
  if (options.pinned && options.pinned->size() != sizeof(Pinned)) {
    refuse("gemm", "algorithm", std::to_string(options.pinned->size()) + " bytes", "the bytes of a pinned algorithm");
  }
  if (options.algorithm != "heuristic" && options.algorithm != "timed") {
    refuse("gemm", "algorithm", "'" + options.algorithm + "'", "heuristic, timed or the bytes of a pinned one");
  }
}

Executor<kdvfs_gemm>::Executor(Arena &arena, const kdvfs_gemm &args, const Options &options, const std::string &name)
    : product_(std::make_unique<Product>(arena, args, options, name)) {}

Executor<kdvfs_gemm>::~Executor() = default;

void Executor<kdvfs_gemm>::launch(const kdvfs_gemm &args) const { product_->multiply(args, product_->chosen.algo); }

std::string Executor<kdvfs_gemm>::pinned() const { return product_->pinned(); }

Facts Executor<kdvfs_gemm>::facts() const {
  const cublasLtMatmulAlgo_t &algorithm = product_->chosen.algo;
  const auto number = [&](auto attribute, auto type) -> std::int64_t {
    return config<decltype(type)>(algorithm, attribute);
  };
  return {{"algorithm_chosen_by", product_->chosen_by},
          {"algorithm_rank", std::int64_t{product_->rank}},
          {"algorithm_proposals", std::int64_t{product_->proposed}},
          {"algorithm_id", number(CUBLASLT_ALGO_CONFIG_ID, std::int32_t{})},
          {"tile_id", number(CUBLASLT_ALGO_CONFIG_TILE_ID, std::uint32_t{})},
          {"stages_id", number(CUBLASLT_ALGO_CONFIG_STAGES_ID, std::uint32_t{})},
          {"split_k", number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, std::int32_t{})},
          {"reduction_scheme", number(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, std::uint32_t{})},
          {"swizzle", number(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, std::uint32_t{})},
          {"custom_option", number(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, std::uint32_t{})},
          {"inner_shape_id", number(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, std::uint16_t{})},
          {"cluster_shape_id", number(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, std::uint16_t{})},
          {"workspace_byte", static_cast<std::int64_t>(product_->chosen.workspaceSize)},
          {"cublaslt", static_cast<std::int64_t>(cublasLtGetVersion())}};
}

}  // namespace kdvfs
