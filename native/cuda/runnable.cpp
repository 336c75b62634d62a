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

Graph::Graph(std::shared_ptr<Device> device, cudaGraph_t graph, const std::string &name)
    : device_(std::move(device)), name_(name) {
  check(cudaGraphInstantiate(&executable_, graph, 0), name + ": graph");
}

Graph::~Graph() {
  cudaSetDevice(device_->index);
  cudaGraphExecDestroy(executable_);
}

void Graph::launch(std::int64_t n) {
  require_count(name_, n);
  device_->enter();
  for (std::int64_t i = 0; i < n; i++) {
    check(cudaGraphLaunch(executable_, device_->stream), name_ + ": graph");
  }
}

double Graph::time_ms(std::int64_t n) {
  Stopwatch watch(*device_);
  watch.start();
  launch(n);
  return watch.stop_ms();
}

void Runnable::run(std::int64_t n) {
  require_count(name(), n);
  device()->enter();
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
  device()->enter();
  const cudaStream_t stream = device()->stream;
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), name() + ": capture");
  try {
    run(n);
  } catch (...) {
    // end the capture, whatever state it is in, or the stream stays unusable
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), name() + ": capture");
  const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> owner(graph, cudaGraphDestroy);
  return std::make_unique<Graph>(device(), graph, name());
}

}  // namespace kdvfs
