// Work that can be enqueued, timed and captured: a plan, or a pass made of plans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kdvfs/device.hpp"

namespace kdvfs {

class Runnable;

// Launches recorded as a CUDA graph: repeated without the cost of launching each. Keeps the memory that they use.
class Graph {
 public:
  Graph(std::shared_ptr<Runnable> recorded, cudaGraph_t graph);
  ~Graph();
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  // Enqueues `n` replays.
  void launch(std::int64_t n);
  // Milliseconds of `n` replays between two events.
  double time_ms(std::int64_t n);

 private:
  const std::shared_ptr<Runnable> recorded_;
  cudaGraphExec_t executable_ = nullptr;
};

class Runnable : public std::enable_shared_from_this<Runnable> {
 public:
  virtual ~Runnable() = default;

  // Enqueues `n` repetitions: no allocation, no wait for the device.
  void run(std::int64_t n);
  // Milliseconds of `n` repetitions between two events.
  double time_ms(std::int64_t n);
  // Throws ShapeError unless `n` is a multiple of `period`.
  std::unique_ptr<Graph> capture(std::int64_t n);

  // After how many repetitions the same buffers are used again.
  virtual std::int64_t period() const { return 1; }
  // Enqueues one repetition. The device must have been entered.
  virtual void enqueue() = 0;
  virtual const std::shared_ptr<Device> &device() const = 0;
  // What it is, for messages: operation and shape.
  virtual std::string name() const = 0;
};

}  // namespace kdvfs
