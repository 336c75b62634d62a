// A device as a user's process has it, a captured graph read node by node, and new graphs built of its nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver.hpp"

namespace kdvfs::graph {

// The context that is current in this process (a framework's), or the first device's where there is none yet. All work
// goes to its default stream.
class Device {
 public:
  explicit Device(const std::string &library);

  void enter() const;  // makes the context current in the calling thread
  void check(driver::Result result, const std::string &what) const { driver::check(call, result, what); }
  void synchronize() const;
  std::string uuid() const;  // as NVML writes it
  int attribute(driver::DeviceAttribute which) const;
  // Copy between any two addresses, host or device, in stream order.
  void copy(driver::Pointer target, driver::Pointer source, std::size_t bytes) const;
  // One hash for each `chunk_byte` of each range (begin, bytes), its last one of what is left; waits once for all of them,
  // since a capture hashes all memory for each kernel. All are multiples of 16.
  std::vector<std::uint64_t> hashes(const std::vector<std::pair<driver::Pointer, std::size_t>> &ranges,
                                    std::size_t chunk_byte) const;

  // A node of one of the kernels of this extension, in blocks of one thread.
  driver::Node add(driver::Graph graph, driver::Function kernel, unsigned blocks, void **parameters,
                   const std::string &what) const;

  const driver::Functions &call;
  driver::Context context = nullptr;
  driver::Device number = 0;
  driver::Stream stream = nullptr;
  driver::Function hash_kernel = nullptr, clock_kernel = nullptr, rest_kernel = nullptr, time_kernel = nullptr;
};

// Device memory for as long as the object lives.
class Memory {
 public:
  Memory(std::shared_ptr<const Device> device, std::size_t bytes, const std::string &what);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  driver::Pointer address() const { return address_; }

 private:
  std::shared_ptr<const Device> device_;
  driver::Pointer address_ = 0;
};

class Event {
 public:
  explicit Event(std::shared_ptr<const Device> device);
  ~Event();
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
  void record();
  bool done() const;
  void wait() const;
  double since_ms(const Event &earlier) const;

 private:
  std::shared_ptr<const Device> device_;
  driver::Event event_ = nullptr;
};

// Marks of every multiprocessor's cycle count and of the device's time: between two marks, its mean clock.
class ClockProbe {
 public:
  ClockProbe(std::shared_ptr<const Device> device, int marks);
  void mark();
  void clear() { marked_ = 0; }
  // For marks that a graph makes each time it runs: the node of the next one.
  driver::Node add(driver::Graph graph);
  std::vector<double> sm_mhz() const;  // between each two neighbouring marks, mean over the multiprocessors

 private:
  std::shared_ptr<const Device> device_;
  int marks_, blocks_, marked_ = 0;
  Memory memory_;

  driver::Pointer next();  // where the next mark goes
};

// Marks of the device's time, by graphs that make some each time they run.
class TimeMarks {
 public:
  TimeMarks(std::shared_ptr<const Device> device, std::int64_t room);
  void clear();  // from here on in stream order they are written from the first place again
  driver::Node add(driver::Graph graph);
  std::vector<std::int64_t> times_ns() const;  // those written since, at most `room`; waits

 private:
  std::shared_ptr<const Device> device_;
  std::uint64_t room_;
  Memory memory_;
};

// A node of a captured graph. Pointers in `kernel` are the graph's own: it must outlive them.
struct Node {
  driver::Node handle = nullptr;
  int type = 0;
  driver::KernelParams kernel{};
  driver::MemsetParams memset{};
  driver::CopyParams copy{};
  std::string function;                                      // as the driver names it (mangled); "" unless a kernel
  std::string parameters;                                    // all bytes of a kernel's parameters
  std::vector<std::pair<std::size_t, std::size_t>> layout;  // (offset, size) of each parameter where known
  bool is_packed = false;                                    // parameters came as one block in `extra`
  unsigned cluster[3] = {0, 0, 0};
  bool is_cooperative = false;
  int priority = 0;
};

struct Edge {
  std::size_t from, to;  // places among the nodes
  driver::EdgeData data;
};

class Loop;

// The graph of a raw handle, its nodes in an order that respects every edge: that of their creation where it can be.
class Captured : public std::enable_shared_from_this<Captured> {
 public:
  Captured(std::shared_ptr<const Device> device, std::uintptr_t handle);

  // A new graph of the nodes at these places, the whole `repeat` times. As a chain, one after the other; or, where
  // keep_edges, each waiting for what it waits for in the captured graph, also through nodes that are left out, rounds
  // one after the other.
  std::unique_ptr<Loop> loop(const std::vector<std::size_t> &places, int repeat, bool keep_edges) const;

  // A new graph that is a chain of the nodes at these places with a rest behind them, the whole `repeat` times; of rests
  // alone where there are no places. marked: which of the list, by number in rising order, `probe` marks before and after,
  // in each round, whenever the graph runs.
  std::unique_ptr<Loop> chain(const std::vector<std::size_t> &places, int repeat, std::uint64_t rest_ns,
                              const std::vector<std::size_t> &marked, std::shared_ptr<ClockProbe> probe) const;

  // A new graph that is a chain of the nodes at these places, with a mark of time before some of them, by number in
  // rising order, and two at its end.
  std::unique_ptr<Loop> timed(const std::vector<std::size_t> &places, const std::vector<std::size_t> &marked,
                              std::shared_ptr<TimeMarks> marks) const;

  std::vector<Node> nodes;
  std::vector<Edge> edges;

 private:
  void check(const std::vector<std::size_t> &places, int repeat) const;
  std::unique_ptr<Loop> instantiated(const std::function<void(driver::Graph)> &fill, std::size_t count,
                                     std::shared_ptr<void> keeps = nullptr) const;
  std::vector<bool> among(const std::vector<std::size_t> &places, const std::vector<std::size_t> &marked) const;
  void link(driver::Graph graph, const std::vector<driver::Node> &chain) const;
  driver::Node add(driver::Graph graph, const Node &node) const;
  std::vector<Edge> edges_among(const std::vector<std::size_t> &places) const;

  std::shared_ptr<const Device> device_;
};

// An executable graph.
class Loop {
 public:
  Loop(std::shared_ptr<const Device> device, std::shared_ptr<const Captured> of, std::shared_ptr<void> keeps,
       driver::Exec exec)
      : device_(std::move(device)), of_(std::move(of)), keeps_(std::move(keeps)), exec_(exec) {}
  ~Loop();
  Loop(const Loop &) = delete;
  Loop &operator=(const Loop &) = delete;
  void run(int count) const;     // enqueue it so often
  double time(int count) const;  // ms of so many runs, waited for

 private:
  std::shared_ptr<const Device> device_;
  std::shared_ptr<const Captured> of_;
  std::shared_ptr<void> keeps_;  // the probe or marks that it writes; none in most
  driver::Exec exec_;
};

}  // namespace kdvfs::graph
