#include "kdvfs/runnable.hpp"

#include "kdvfs/describe.hpp"
#include "kdvfs/stream.hpp"

namespace kdvfs {

namespace {

void require_count(const std::string &name, std::int64_t n) {
  if (n < 1) {
    throw ShapeError(name + ": number of repetitions is " + std::to_string(n) + ", expected at least 1");
  }
}

}  // namespace

Graph::Graph(std::shared_ptr<Runnable> recorded, cudaGraph_t graph) : recorded_(std::move(recorded)) {
  check(cudaGraphInstantiate(&executable_, graph, 0), recorded_->name() + ": graph");
}

Graph::~Graph() {
  cudaSetDevice(recorded_->device()->index);
  cudaGraphExecDestroy(executable_);
}

void Graph::launch(std::int64_t n) {
  const std::string name = recorded_->name();
  require_count(name, n);
  const Device &device = *recorded_->device();
  const auto turn = device.enter();
  for (std::int64_t i = 0; i < n; i++) {
    if (const cudaError_t status = cudaGraphLaunch(executable_, device.stream); status != cudaSuccess) {
      check(status, name + ": graph");
    }
  }
}

double Graph::time_ms(std::int64_t n) {
  Stopwatch watch(*recorded_->device());
  watch.start();
  launch(n);
  return watch.stop_ms();
}

void Runnable::run(std::int64_t n) {
  require_count(name(), n);
  const auto turn = device()->enter();
  for (std::int64_t i = 0; i < n; i++) {
    enqueue();
  }
}

double Runnable::time_ms(std::int64_t n) {
  Stopwatch watch(*device());
  watch.start();
  run(n);
  return watch.stop_ms();
}

std::unique_ptr<Graph> Runnable::capture(std::int64_t n) {
  require_count(name(), n);
  if (n % period() != 0) {
    throw ShapeError(name() + ": number of repetitions to capture is " + std::to_string(n) +
                     ", expected a multiple of rotate = " + std::to_string(period()));
  }
  const auto turn = device()->enter();
  const cudaStream_t stream = device()->stream;
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), name() + ": capture");
  try {
    run(n);
  } catch (...) {
    // end the capture, whatever state it is in, or the stream stays unusable
    cudaStreamEndCapture(stream, &graph);
    if (graph) {
      cudaGraphDestroy(graph);
    }
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), name() + ": capture");
  const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> owner(graph, cudaGraphDestroy);
  return std::make_unique<Graph>(shared_from_this(), graph);
}

}  // namespace kdvfs
