// Does cuBLASLt hold a faster algorithm for a matrix product of GPT-3-xl (batch 40) than the one that
// native/cuda/gemm.cpp chose among the heuristic's proposals, in windows of 80 ms? Every algorithm is asked for every
// tile, stages and cluster; what it accepts is timed for as long as there is time, then the neighbours of the best. The
// best are timed in turn with the layer's, and the very best for 2 s each, with energy. Last, "leads": other products
// that the layer could ask for instead.
//
//   I=...  # the folder of cublasLt.h
//   { for n in MATMUL_TILE CLUSTER_SHAPE; do echo "static const std::map<unsigned, std::array<int, 2>> $n = {";
//     sed -nE "s/^ *CUBLASLT_${n}_([0-9]+)x([0-9]+)(x1)? *= *([0-9]+),.*/{\4, {\1, \2}},/p" $I/cublasLt.h
//     echo "};"; done; } > names.inc
//   nvcc -O1 -std=c++17 -arch=sm_90 -I. -I$I experiments/benchmarks/cublaslt_search.cu -o search -lcublasLt -lnvidia-ml
//   ./search fc 33 > fc.csv    # PRODUCT: fc, qkv, scores or datt; SECONDS, about
//
// Sets nothing. Rows go to standard output, words to standard error. An algorithm that loses the context ends the run.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nvml.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "names.inc"

using Bf16 = __nv_bfloat16;
constexpr std::size_t MiB = 1u << 20, workspace_most = 256 * MiB, workspace_layer = 32 * MiB;

static double now_s() {
  static const auto began = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}
template <typename Code>
static void must(Code code, const char *what) {
  if (code) {
    std::fprintf(stderr, "%s: code %d\n", what, static_cast<int>(code));
    std::exit(1);
  }
}

// --- data -----------------------------------------------------------------------------------------------------------

__global__ void fill(Bf16 *tensor, long size, float sd, unsigned long seed) {
  for (long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {
    unsigned long x = seed * 0x632be59bd9b4e019ul + (i + 1) * 0x9e3779b97f4a7c15ul;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ul;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebul;
    x ^= x >> 31;
    const float u = ((x >> 40) + 1) * 0x1p-24f, v = (x & 0xffffff) * 0x1p-24f;
    tensor[i] = __float2bfloat16_rn(sd * sqrtf(fmaxf(0.0f, -2.0f * __logf(u))) * __cosf(6.2831853f * v));
  }
}

// sums[0]: of (x - y)^2; sums[1]: of y^2
__global__ void compare(const Bf16 *x, const Bf16 *y, long size, double *sums) {
  double apart = 0, whole = 0;
  for (long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {
    const double a = __bfloat162float(x[i]), b = __bfloat162float(y[i]);
    apart += (a - b) * (a - b), whole += b * b;
  }
  atomicAdd(sums, apart), atomicAdd(sums + 1, whole);
}

static Bf16 *tensor(long size, float sd, unsigned long seed) {
  Bf16 *made = nullptr;
  must(cudaMalloc(&made, size * sizeof(Bf16)), "memory");
  fill<<<1056, 256>>>(made, size, sd, seed);
  must(cudaDeviceSynchronize(), "fill");
  return made;
}

// --- cuBLASLt -------------------------------------------------------------------------------------------------------

static cublasLtHandle_t blas;
static cudaStream_t stream;
static void *workspace;

// d (M, N) = a (M, K) times b (N, K) transposed, or b (K, N), by rows; 0: dense.
struct Shape {
  long count = 1, M = 0, N = 0, K = 0;
  bool is_b_by_columns = false;
  const Bf16 *a = nullptr, *b = nullptr, *bias = nullptr;
  Bf16 *d = nullptr;
  long lda = 0, ldb = 0, ldd = 0, stride_a = -1, stride_b = -1, stride_d = -1, stride_bias = -1;  // -1: dense
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  void *aux = nullptr;
  int sm_target = 0, fill_mode = -1;
};

struct Product {
  Shape shape;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  bool is_offered = true;

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    is_offered &= !cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value);
  }
  void lay_out(cublasLtMatrixLayout_t &layout, long rows, long columns, long ld, long stride) {
    const int count = static_cast<int>(shape.count);
    stride = stride < 0 ? rows * columns : stride;
    must(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, rows, columns, ld ? ld : rows), "layout");
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  }
  explicit Product(const Shape &s) : shape(s) {
    must(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
    if (!s.is_b_by_columns) set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (s.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, s.epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void *>(s.bias));
      if (s.stride_bias >= 0) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, s.stride_bias);
    }
    if (s.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, s.aux), set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.N);
    if (s.sm_target) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, s.sm_target);
    if (s.fill_mode >= 0) set(CUBLASLT_MATMUL_DESC_FILL_MODE, s.fill_mode);
    lay_out(first, s.is_b_by_columns ? s.N : s.K, s.is_b_by_columns ? s.K : s.N, s.ldb, s.stride_b);
    lay_out(second, s.K, s.M, s.lda, s.stride_a);
    lay_out(result, s.N, s.M, s.ldd, s.stride_d);
  }
  Product(const Product &) = delete;

  bool launch(const cublasLtMatmulAlgo_t &algorithm, Bf16 *into = nullptr) const {
    const float alpha = 1, beta = 0;
    Bf16 *d = into ? into : shape.d;
    return !cublasLtMatmul(blas, description, &alpha, shape.b, first, shape.a, second, &beta, d, result, d, result,
                           &algorithm, workspace, workspace_most, stream);
  }
  std::vector<cublasLtMatmulAlgo_t> proposals(int asked, std::size_t bytes, unsigned reductions) const {
    std::vector<cublasLtMatmulHeuristicResult_t> found(asked);
    cublasLtMatmulPreference_t preference;
    must(cublasLtMatmulPreferenceCreate(&preference), "preference");
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                         sizeof reductions);
    int n = 0;
    if (!is_offered || cublasLtMatmulAlgoGetHeuristic(blas, description, first, second, result, result, preference,
                                                      asked, found.data(), &n)) {
      n = 0;
    }
    cublasLtMatmulPreferenceDestroy(preference);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < n; i++) {
      if (!found[i].state) algorithms.push_back(found[i].algo);
    }
    return algorithms;
  }
};

// An algorithm by its numbers.
enum Field { ID, TILE, STAGES, CLUSTER, SPLIT, REDUCTION, SWIZZLE, CUSTOM, INNER, FIELDS };
using Config = std::array<unsigned, FIELDS>;
struct Attribute {
  cublasLtMatmulAlgoConfigAttributes_t what;
  std::size_t bytes;
  unsigned usual;
};
constexpr Attribute attributes[FIELDS] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4, 0},          {CUBLASLT_ALGO_CONFIG_TILE_ID, 4, 0},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4, 0},   {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2, 0},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4, 1},  {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4, 0},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4, 0}, {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4, 0},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2, 0}};

static Config config(const cublasLtMatmulAlgo_t &algorithm) {
  Config c{};
  std::size_t written = 0;
  for (int i = 0; i < FIELDS; i++) {
    c[i] = attributes[i].usual;
    unsigned value = 0;
    if (!cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attributes[i].what, &value, attributes[i].bytes, &written)) {
      c[i] = value;
    }
  }
  return c;
}
// What is as usual is not set: an algorithm may refuse an attribute that it does not have.
static bool make(const Config &c, cublasLtMatmulAlgo_t &algorithm) {
  constexpr auto type = CUDA_R_16BF;
  if (cublasLtMatmulAlgoInit(blas, CUBLAS_COMPUTE_32F, CUDA_R_32F, type, type, type, type, c[ID], &algorithm)) {
    return false;
  }
  for (int i = TILE; i < FIELDS; i++) {
    if (c[i] != attributes[i].usual &&
        cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attributes[i].what, &c[i], attributes[i].bytes)) {
      return false;
    }
  }
  return true;
}
static std::vector<unsigned> listed(const cublasLtMatmulAlgo_t &algorithm, cublasLtMatmulAlgoCapAttributes_t what) {
  std::size_t size = 0;
  cublasLtMatmulAlgoCapGetAttribute(&algorithm, what, nullptr, 0, &size);
  std::vector<unsigned> values(std::max<std::size_t>(1, size / sizeof(unsigned)));
  if (size) cublasLtMatmulAlgoCapGetAttribute(&algorithm, what, values.data(), size, &size);
  return values;
}
static std::array<int, 2> sides(const std::map<unsigned, std::array<int, 2>> &names, unsigned id) {
  const auto found = names.find(id);
  return found == names.end() ? std::array<int, 2>{} : found->second;
}
static int area(const std::array<int, 2> &side) { return side[0] * side[1]; }
// tiles and clusters as the heuristic's own: they are tried first
static bool is_likely(const Config &c) {
  const int tile = area(sides(MATMUL_TILE, c[TILE]));
  return tile >= 128 * 128 && tile <= 256 * 256 && area(sides(CLUSTER_SHAPE, c[CLUSTER])) <= 4;
}

// --- time and energy ------------------------------------------------------------------------------------------------

using Launch = std::function<bool()>;

static int enough(double launch_us, double window_ms) {
  return std::max(3, static_cast<int>(std::ceil(1e3 * window_ms / std::max(1.0, launch_us))));
}
// Microseconds of one of n launches; below 0 where one is refused.
static double time_us(const Launch &launch, int n) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (!begin) must(cudaEventCreate(&begin), "event"), must(cudaEventCreate(&end), "event");
  must(cudaEventRecord(begin, stream), "event");
  for (int i = 0; i < n; i++) {
    if (!launch()) {
      must(cudaStreamSynchronize(stream), "refused");
      return -1;
    }
  }
  must(cudaEventRecord(end, stream), "event");
  must(cudaEventSynchronize(end), "launch");
  float ms = 0;
  must(cudaEventElapsedTime(&ms, begin, end), "time");
  return 1e3 * ms / n;
}
// In a window; one launch alone where that takes longer than most_us.
static double quick_us(const Launch &launch, double window_ms, double most_us) {
  if (time_us(launch, 1) < 0) return -1;  // loads the kernel
  const double once_us = time_us(launch, 1);
  return once_us < 0 || once_us > most_us ? once_us : time_us(launch, enough(once_us, window_ms));
}
static double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? NAN : (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}
struct Pair {
  double us, ratio;  // medians; ratio: to the layer's
};
// In turn with the layer's, each window after a launch that is not counted.
static Pair in_turn(const Launch &layer, const Launch &other, double us, double window_ms, int rounds) {
  std::vector<double> times, ratios;
  for (int i = 0; i < rounds; i++) {
    time_us(layer, 1);
    const double x = time_us(layer, enough(us, window_ms));
    time_us(other, 1);
    const double y = time_us(other, enough(us, window_ms));
    if (x > 0 && y > 0) times.push_back(y), ratios.push_back(y / x);
  }
  return {median(times), median(ratios)};
}

struct Watched {
  double us, joule;
};
// Launches without a gap for warm_s and then `seconds`; power between the counter's first move and its last.
static Watched watched(nvmlDevice_t board, const Launch &launch, double launch_us, double warm_s, double seconds) {
  const int chunk = enough(launch_us, 20);
  std::vector<cudaEvent_t> marks;  // one behind each chunk
  const auto counter_mj = [&] {
    unsigned long long mj = 0;
    must(nvmlDeviceGetTotalEnergyConsumption(board, &mj), "energy counter");
    return mj;
  };
  const double begin_s = now_s() + warm_s;
  double first_s = 0, last_s = 0;
  unsigned long long first = 0, last = 0, seen = counter_mj();
  std::size_t warm = 0;
  while (now_s() < begin_s + seconds) {
    for (int i = 0; i < chunk; i++) must(!launch(), "launch");
    marks.push_back(nullptr);
    must(cudaEventCreate(&marks.back()), "mark"), must(cudaEventRecord(marks.back(), stream), "mark");
    if (now_s() < begin_s) warm = marks.size();
    // the counter is read while this chunk or the one before it runs
    while (marks.size() > 1 && cudaEventQuery(marks[marks.size() - 2]) == cudaErrorNotReady) {
      const auto mj = counter_mj();
      if (mj != seen && now_s() > begin_s) {
        last_s = now_s(), last = mj;
        if (!first) first_s = last_s, first = mj;
      }
      seen = mj;
    }
  }
  must(cudaStreamSynchronize(stream), "watch");
  float ms = 0;
  must(cudaEventElapsedTime(&ms, marks[warm], marks.back()), "time");
  const double us = 1e3 * ms / (static_cast<double>(marks.size() - 1 - warm) * chunk);
  for (auto &mark : marks) cudaEventDestroy(mark);
  return {us, 1e-9 * (last - first) / (last_s - first_s) * us};
}

// --- the search -----------------------------------------------------------------------------------------------------

struct Candidate {
  std::string source;
  cublasLtMatmulAlgo_t algorithm{};
  double us = INFINITY, ratio = INFINITY;
  std::string key() const { return {reinterpret_cast<const char *>(&algorithm), sizeof algorithm}; }
};

static std::string name;
static void row(const char *stage, const Candidate &one, double us, double ratio, double joule = NAN) {
  const Config c = config(one.algorithm);
  const auto tile = sides(MATMUL_TILE, c[TILE]), cluster = sides(CLUSTER_SHAPE, c[CLUSTER]);
  std::printf("%s,%s,%s,%u,%dx%d,%u,%dx%d,%u,%u,%u,%u,%u,%.3f,%.5f,%.6f\n", name.c_str(), stage, one.source.c_str(),
              c[ID], tile[0], tile[1], c[STAGES], cluster[0], cluster[1], c[SPLIT], c[REDUCTION], c[SWIZZLE], c[CUSTOM],
              c[INNER], us, ratio, joule);
}

constexpr long B = 40, T = 1024, C = 2048, NH = 16, HS = 128;

struct Lead {
  std::string what;
  std::vector<Shape> shapes;
};
static std::vector<Lead> leads(const Shape &layer, bool is_attention, void *aux) {
  const auto changed = [&](const std::function<void(Shape &)> &change) {
    Shape s = layer;
    change(s);
    return s;
  };
  if (!is_attention) {
    std::vector<Lead> some = {
        {"weight stored (K;N)", {changed([](Shape &s) { s.is_b_by_columns = true; })}},
        {"on 128 SMs", {changed([](Shape &s) { s.sm_target = 128; })}},
        {"on 120 SMs", {changed([](Shape &s) { s.sm_target = 120; })}},
        {"no bias", {changed([](Shape &s) { s.bias = nullptr; })}},
    };
    if (name == "fc") {
      some.push_back({"bias and GELU; pre-activation kept",
                      {changed([&](Shape &s) { s.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, s.aux = aux; })}});
      some.push_back({"bias and GELU; pre-activation not kept",
                      {changed([](Shape &s) { s.epilogue = CUBLASLT_EPILOGUE_GELU_BIAS; })}});
    } else {
      some.push_back({"three planes q k v",
                      {changed([](Shape &s) { s.count = 3, s.N = C, s.stride_a = 0, s.stride_bias = C; })}});
    }
    return some;
  }
  // d by rows, keys up to the query: the upper triangle where columns come first
  std::vector<Lead> some = {
      {"causal by fill mode", {changed([](Shape &s) { s.fill_mode = CUBLAS_FILL_MODE_UPPER; })}}};
  for (const int blocks : {2, 4, 8}) {
    Lead lead{"causal by " + std::to_string(blocks) + " rows of blocks", {}};
    for (int i = 0; i < blocks; i++) {
      lead.shapes.push_back(changed([&](Shape &s) {
        s.M = T / blocks, s.N = T / blocks * (i + 1), s.a += i * s.M * HS, s.d += i * s.M * T, s.ldd = T;
        s.stride_a = s.stride_b = T * HS, s.stride_d = T * T;
      }));
    }
    some.push_back(lead);
  }
  // straight from (B, T, 3, NH, HS): no permute before it
  const Bf16 *qkv = tensor(B * T * 3 * C, 1.0f, 5);
  Lead lead{"q and k from qkv; a launch for each sequence", {}};
  for (long i = 0; i < B; i++) {
    lead.shapes.push_back(changed([&](Shape &s) {
      s.count = NH, s.a = qkv + i * T * 3 * C, s.b = s.a + C, s.lda = s.ldb = 3 * C, s.stride_a = s.stride_b = HS;
      s.d += i * NH * T * T, s.stride_d = T * T;
    }));
  }
  some.push_back(lead);
  return some;
}

int main(int argc, char **argv) {
  name = argc == 3 ? argv[1] : "";
  const bool is_attention = name == "scores" || name == "datt";
  if (!is_attention && name != "fc" && name != "qkv") {
    return std::fprintf(stderr, "usage: search fc|qkv|scores|datt SECONDS\n"), 2;
  }
  const double budget_s = std::atof(argv[2]);
  now_s();
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  must(cublasLtCreate(&blas), "cuBLASLt");
  must(cudaMalloc(&workspace, workspace_most), "workspace");
  char bus[64];
  nvmlDevice_t board;
  must(cudaDeviceGetPCIBusId(bus, sizeof bus, 0), "bus"), must(nvmlInit_v2(), "NVML");
  must(nvmlDeviceGetHandleByPciBusId_v2(bus, &board), "board");

  // ---- the product, as the layer describes it
  Shape shape;
  shape.count = is_attention ? B * NH : 1, shape.M = is_attention ? T : B * T, shape.K = is_attention ? HS : C;
  shape.N = is_attention ? T : (name == "fc" ? 4 : 3) * C;
  if (!is_attention) shape.bias = tensor(shape.N, 0.02f, 3);
  shape.a = tensor(shape.count * shape.M * shape.K, name == "datt" ? 1e-3f : 1.0f, 1);
  shape.b = tensor(shape.count * shape.N * shape.K, is_attention ? 1.0f : 0.02f, 2);
  const long size = shape.count * shape.M * shape.N;
  shape.d = tensor(size, 0, 0);
  Bf16 *reference = tensor(size, 0, 0);
  double *sums = nullptr;
  must(cudaMallocManaged(&sums, 2 * sizeof(double)), "sums");
  const Product product(shape);
  const auto launch_of = [&](const Candidate &one) -> Launch {
    return [&product, algorithm = one.algorithm] { return product.launch(algorithm); };
  };
  std::puts("product,stage,source,id,tile,stages,cluster,split_k,reduction,swizzle,custom,inner,us,ratio,joule");

  // ---- the layer's choice, as it then was: 40 proposals, then 6 finalists four times for 80 ms
  constexpr unsigned layer_reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  std::vector<Candidate> proposals;
  for (const auto &algorithm : product.proposals(40, workspace_layer, layer_reduction)) {
    proposals.push_back({"proposal " + std::to_string(proposals.size()), algorithm});
  }
  must(proposals.empty(), "no proposal");
  for (const double end_s = now_s() + 0.5; now_s() < end_s;) time_us(launch_of(proposals[0]), 20);  // warm
  for (auto &one : proposals) {
    const double us = quick_us(launch_of(one), 20, INFINITY);
    one.us = us > 0 ? us : INFINITY;
  }
  std::sort(proposals.begin(), proposals.end(), [](const auto &x, const auto &y) { return x.us < y.us; });
  std::vector<double> finalists(std::min<std::size_t>(6, proposals.size()));
  for (int round = 0; round < 4; round++) {
    for (std::size_t i = 0; i < finalists.size(); i++) {
      finalists[i] += time_us(launch_of(proposals[i]), enough(proposals[i].us, 80)) / 4;
    }
  }
  const auto fastest = std::min_element(finalists.begin(), finalists.end());
  const Candidate layer = proposals[fastest - finalists.begin()];
  const Launch layer_launch = launch_of(layer);
  double layer_us = *fastest;
  must(!product.launch(layer.algorithm, reference), "reference");
  std::map<std::string, Candidate> known;
  for (auto &one : proposals) {
    one.ratio = one.us / layer_us;
    row("proposal", one, one.us, one.ratio);
    known.emplace(one.key(), one);
  }
  std::fprintf(stderr, "%s: %zu proposals, %zu with %zu MiB and all reductions; the layer's choice takes %.2f us\n",
               name.c_str(), proposals.size(),
               product.proposals(200, workspace_most, CUBLASLT_REDUCTION_SCHEME_MASK).size(), workspace_most / MiB,
               layer_us);

  // ---- every algorithm, tile, stages and cluster, with the options that the heuristic uses for that algorithm
  std::map<unsigned, std::set<std::array<unsigned, 3>>> options;
  for (const auto &one : proposals) {
    const Config c = config(one.algorithm);
    if (options[c[ID]].size() < 4) options[c[ID]].insert({c[CUSTOM], c[SWIZZLE], c[INNER]});
  }
  const auto is_accepted = [&](const Config &c, cublasLtMatmulAlgo_t &algorithm) {
    cublasLtMatmulHeuristicResult_t result{};
    return make(c, algorithm) && !cublasLtMatmulAlgoCheck(blas, product.description, product.first, product.second,
                                                          product.result, product.result, &algorithm, &result) &&
           !result.state && result.workspaceSize <= workspace_most;
  };
  const auto consider = [&](const char *stage, const cublasLtMatmulAlgo_t &algorithm) {
    Candidate one{stage, algorithm};
    if (known.count(one.key())) return;
    static double last_s = now_s();
    if (now_s() - last_s > 0.7) layer_us = time_us(layer_launch, enough(layer_us, 20)), last_s = now_s();
    const double us = quick_us(launch_of(one), 20, 1.1 * layer_us);
    if (us > 0) one.us = us, one.ratio = us / layer_us, row(stage, one, us, one.ratio);
    known.emplace(one.key(), one);
  };
  std::vector<unsigned> clusters = {0};
  for (const auto &[cluster, side] : CLUSTER_SHAPE) {
    if (area(side) <= 16) clusters.push_back(cluster);
  }
  int ids[512], id_count = 0;
  constexpr auto type = CUDA_R_16BF;
  must(cublasLtMatmulAlgoGetIds(blas, CUBLAS_COMPUTE_32F, CUDA_R_32F, type, type, type, type, 512, ids, &id_count),
       "ids");
  std::vector<cublasLtMatmulAlgo_t> grid;
  long asked = 0;
  for (int i = 0; i < id_count; i++) {
    Config c{};
    cublasLtMatmulAlgo_t algorithm;
    c[ID] = ids[i], c[SPLIT] = 1;
    if (!make(c, algorithm)) continue;
    auto each = options.count(c[ID]) ? options[c[ID]] : std::set<std::array<unsigned, 3>>{};
    each.insert({0, 0, 0});
    const auto tiles = listed(algorithm, CUBLASLT_ALGO_CAP_TILE_IDS);
    const auto stages = listed(algorithm, CUBLASLT_ALGO_CAP_STAGES_IDS);
    for (const unsigned tile : tiles) {
      const int tile_area = area(sides(MATMUL_TILE, tile));
      if (tile_area && tile_area < 64 * 64) continue;
      for (const unsigned stage : stages) {
        for (const unsigned cluster : clusters) {
          for (const auto &option : each) {
            c[TILE] = tile, c[STAGES] = stage, c[CLUSTER] = cluster;
            c[CUSTOM] = option[0], c[SWIZZLE] = option[1], c[INNER] = option[2];
            asked++;
            if (is_accepted(c, algorithm)) grid.push_back(algorithm);
          }
        }
      }
    }
  }
  // those of the heuristic's algorithms first, of them the likely; else at random
  std::shuffle(grid.begin(), grid.end(), std::mt19937(12345));
  const auto merit = [&](const cublasLtMatmulAlgo_t &algorithm) {
    const Config c = config(algorithm);
    return 2 * static_cast<int>(options.count(c[ID])) + is_likely(c);
  };
  std::stable_sort(grid.begin(), grid.end(), [&](const auto &x, const auto &y) { return merit(x) > merit(y); });
  std::size_t timed = 0;
  for (; timed < grid.size() && now_s() < 0.46 * budget_s; timed++) consider("grid", grid[timed]);
  std::fprintf(stderr, "%s: %ld asked for, %zu accepted, %zu timed\n", name.c_str(), asked, grid.size(), timed);

  // ---- the neighbours of the best in what the grid left alone
  const auto best = [&](std::size_t most) {
    std::vector<Candidate> order;
    for (const auto &[key, one] : known) {
      if (std::isfinite(one.ratio) && key != layer.key()) order.push_back(one);
    }
    std::sort(order.begin(), order.end(), [](const auto &x, const auto &y) { return x.ratio < y.ratio; });
    order.resize(std::min(most, order.size()));
    return order;
  };
  auto seeds = best(12);
  seeds.insert(seeds.begin(), layer);
  for (const auto &seed : seeds) {
    std::vector<Config> near;
    const auto vary = [&](Field field, const std::vector<unsigned> &values) {
      for (const unsigned value : values) near.push_back(config(seed.algorithm)), near.back()[field] = value;
    };
    std::vector<unsigned> customs(1 + std::min(31u, listed(seed.algorithm, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX)[0]));
    std::vector<unsigned> inners(CUBLASLT_MATMUL_INNER_SHAPE_END);
    for (auto *all : {&customs, &inners}) {
      for (unsigned i = 0; i < all->size(); i++) (*all)[i] = i;
    }
    vary(CUSTOM, customs), vary(SWIZZLE, {0, 1}), vary(INNER, inners), vary(CLUSTER, clusters);
    vary(STAGES, listed(seed.algorithm, CUBLASLT_ALGO_CAP_STAGES_IDS));
    for (const unsigned split : {2, 3, 4, 8}) vary(SPLIT, {split}), near.back()[REDUCTION] = layer_reduction;
    for (const Config &c : near) {
      cublasLtMatmulAlgo_t algorithm;
      if (now_s() < 0.56 * budget_s && is_accepted(c, algorithm)) consider("near", algorithm);
    }
  }

  // ---- the best 20 in turn with the layer's, the best 3 of them for longer, the best one for 2 s, with energy
  const auto is_right = [&](const Candidate &one) {
    must(cudaMemsetAsync(shape.d, 0xff, size * sizeof(Bf16), stream), "poison");
    sums[0] = sums[1] = 0;
    if (!launch_of(one)()) return false;
    compare<<<1056, 256, 0, stream>>>(shape.d, reference, size, sums);
    must(cudaStreamSynchronize(stream), "compare");
    return std::sqrt(sums[0] / sums[1]) < 1e-2;
  };
  std::vector<Candidate> finals;
  const auto refine = [&](const char *stage, std::vector<Candidate> some, double window_ms, int rounds, int most) {
    for (auto &one : some) {
      const Pair pair = in_turn(layer_launch, launch_of(one), layer_us, window_ms, rounds);
      row(stage, one, pair.us, one.ratio = pair.ratio);
    }
    std::sort(some.begin(), some.end(), [](const auto &x, const auto &y) { return x.ratio < y.ratio; });
    some.resize(std::min<std::size_t>(most, some.size()));
    return some;
  };
  for (const auto &one : best(20)) {
    if (is_right(one)) finals.push_back(one);
  }
  finals = refine("finer", refine("fine", finals, 24, 4, 3), 80, 5, 1);
  for (int i = 0; i < 2 && !finals.empty(); i++) {
    const Watched x = watched(board, layer_launch, layer_us, 0.25, 2);
    const Watched y = watched(board, launch_of(finals[0]), layer_us, 0.25, 2);
    row("final-layer", layer, x.us, 1, x.joule), row("final", finals[0], y.us, y.us / x.us, y.joule);
    std::fprintf(stderr, "%s: final: time ratio %.4f, energy ratio %.4f\n", name.c_str(), y.us / x.us,
                 y.joule / x.joule);
  }

  // ---- leads: each takes the quick best of its own proposals
  for (const auto &lead : leads(shape, is_attention, reference)) {
    std::vector<std::pair<std::unique_ptr<Product>, cublasLtMatmulAlgo_t>> parts;
    Candidate shown{"lead: " + lead.what};
    for (const Shape &each : lead.shapes) {
      auto part = std::make_unique<Product>(each);
      const Shape &first = lead.shapes[0];
      if (parts.empty() || each.M != first.M || each.N != first.N) {  // those alike share the algorithm
        double least_us = INFINITY;
        const int asked_for = lead.shapes.size() > 1 ? 8 : 40;
        for (const auto &algorithm : part->proposals(asked_for, workspace_layer, layer_reduction)) {
          const double us = quick_us([&] { return part->launch(algorithm); }, 10, 1.1 * least_us);
          if (us > 0 && us < least_us) least_us = us, shown.algorithm = algorithm;
        }
        if (std::isinf(least_us)) break;
      }
      parts.emplace_back(std::move(part), shown.algorithm);
    }
    if (parts.size() < lead.shapes.size()) {
      std::fprintf(stderr, "%s: lead %s: not offered\n", name.c_str(), lead.what.c_str());
      continue;
    }
    const auto all = [&] {
      return std::all_of(parts.begin(), parts.end(), [](const auto &part) { return part.first->launch(part.second); });
    };
    const Pair pair = in_turn(layer_launch, all, layer_us, 60, 4);
    row("lead", shown, pair.us, pair.ratio);
    std::fprintf(stderr, "%s: lead %s: %.4f of the layer's (%zu launches)\n", name.c_str(), lead.what.c_str(),
                 pair.ratio, parts.size());
  }
}
