#include <cstdio>

#include "kdvfs/clock_reading.hpp"
#include "kdvfs/error.hpp"
#include "graph.hpp"
#include "kernels.hpp"

namespace kdvfs::graph {

using driver::Pointer;

Device::Device(const std::string &library) : call(driver::open(library)) {
  check(call.init(0), "CUDA driver");
  check(call.context_current(&context), "CUDA context");
  if (context) {
    check(call.context_device(&number), "CUDA context");
  } else {
    check(call.device_get(&number, 0), "GPU 0");
    check(call.primary_context(&context, number), "CUDA context");
    enter();
  }
  driver::Module module = nullptr;
  check(call.module_load(&module, ptx), "kernels of the extension");
  check(call.module_function(&hash_kernel, module, "kdvfs_hash"), "kernel of hashes");
  check(call.module_function(&clock_kernel, module, "kdvfs_clock"), "kernel of the clock probe");
  check(call.module_function(&rest_kernel, module, "kdvfs_rest"), "kernel of rests");
  check(call.module_function(&time_kernel, module, "kdvfs_time"), "kernel of time marks");
}

void Device::enter() const { check(call.context_set(context), "CUDA context"); }

void Device::synchronize() const {
  enter();
  check(call.context_synchronize(), "running kernels");
}

std::string Device::uuid() const {
  driver::Uuid found{};
  check(call.device_uuid(&found, number), "UUID of the GPU");
  std::string text = "GPU";
  for (int i = 0; i < 16; i++) {
    char two[4];
    std::snprintf(two, sizeof two, "%02x", found.bytes[i]);
    text += (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) ? std::string("-") + two : two;
  }
  return text;
}

int Device::attribute(driver::DeviceAttribute which) const {
  int value = 0;
  check(call.device_attribute(&value, which, number), "attribute of the GPU");
  return value;
}

void Device::copy(Pointer target, Pointer source, std::size_t bytes) const {
  enter();
  check(call.copy(target, source, bytes, stream), "copy of " + std::to_string(bytes) + " B");
}

std::vector<std::uint64_t> Device::hashes(const std::vector<std::pair<Pointer, std::size_t>> &ranges,
                                          std::size_t chunk_byte) const {
  std::size_t chunks = 0;
  for (const auto &[begin, bytes] : ranges) {
    if (begin % 16 || bytes % 16 || chunk_byte % 16 || !chunk_byte) {
      throw ShapeError("hashes: begin, bytes and chunk_byte are not multiples of 16");
    }
    chunks += (bytes + chunk_byte - 1) / chunk_byte;
  }
  std::vector<std::uint64_t> sums(chunks);
  if (sums.empty()) {
    return sums;
  }
  enter();
  const std::size_t sums_byte = sums.size() * sizeof(std::uint64_t);
  Pointer on_device = 0;
  check(call.allocate(&on_device, sums_byte), "hashes");
  driver::Result result = driver::success;
  Pointer sum = on_device;
  for (auto [begin, bytes] : ranges) {
    std::uint64_t count = bytes / 16, per_chunk = chunk_byte / 16;
    const std::size_t blocks = (bytes + chunk_byte - 1) / chunk_byte;
    void *parameters[] = {&begin, &count, &per_chunk, &sum};
    if (blocks && result == driver::success) {
      result = call.launch_kernel(hash_kernel, static_cast<unsigned>(blocks), 1, 1, 256, 1, 1, 0, stream, parameters,
                                  nullptr);
    }
    sum += blocks * sizeof(std::uint64_t);
  }
  if (result == driver::success) {
    result = call.stream_synchronize(stream);
  }
  if (result == driver::success) {
    result = call.download(sums.data(), on_device, sums_byte);
  }
  call.free(on_device);
  check(result, "hashes");
  return sums;
}

driver::Node Device::add(driver::Graph graph, driver::Function kernel, unsigned blocks, void **parameters,
                         const std::string &what) const {
  driver::KernelParams params{};
  params.func = kernel;
  params.grid[0] = blocks;
  params.grid[1] = params.grid[2] = params.block[0] = params.block[1] = params.block[2] = 1;
  params.kernel_params = parameters;
  driver::Node node = nullptr;
  check(call.kernel_add(&node, graph, nullptr, 0, &params), what);
  return node;
}

Memory::Memory(std::shared_ptr<const Device> device, std::size_t bytes, const std::string &what)
    : device_(std::move(device)) {
  device_->enter();
  device_->check(device_->call.allocate(&address_, bytes), what);
}

Memory::~Memory() { device_->call.free(address_); }

Event::Event(std::shared_ptr<const Device> device) : device_(std::move(device)) {
  device_->enter();
  device_->check(device_->call.event_create(&event_, 0), "event");
}

Event::~Event() { device_->call.event_destroy(event_); }

void Event::record() { device_->check(device_->call.event_record(event_, device_->stream), "event"); }

bool Event::done() const {
  const driver::Result result = device_->call.event_query(event_);
  if (result == driver::not_ready) {
    return false;
  }
  device_->check(result, "running kernels");
  return true;
}

void Event::wait() const { device_->check(device_->call.event_synchronize(event_), "running kernels"); }

double Event::since_ms(const Event &earlier) const {
  float ms = 0;
  device_->check(device_->call.event_elapsed(&ms, earlier.event_, event_), "event");
  return static_cast<double>(ms);
}

ClockProbe::ClockProbe(std::shared_ptr<const Device> device, int marks)
    : device_(std::move(device)),
      marks_(marks),
      blocks_(2 * device_->attribute(driver::multiprocessors)),
      memory_(device_, sizeof(ClockReading) * static_cast<std::size_t>(marks) * static_cast<std::size_t>(blocks_),
              "clock probe") {}

Pointer ClockProbe::next() {
  if (marked_ == marks_) {
    throw ShapeError("clock probe: mark " + std::to_string(marked_ + 1) + " of at most " + std::to_string(marks_));
  }
  return memory_.address() + sizeof(ClockReading) * static_cast<Pointer>(blocks_) * static_cast<Pointer>(marked_++);
}

void ClockProbe::mark() {
  Pointer at = next();
  void *parameters[] = {&at};
  device_->check(device_->call.launch_kernel(device_->clock_kernel, static_cast<unsigned>(blocks_), 1, 1, 1, 1, 1, 0,
                                             device_->stream, parameters, nullptr),
                 "clock probe");
}

driver::Node ClockProbe::add(driver::Graph graph) {
  Pointer at = next();
  void *parameters[] = {&at};
  return device_->add(graph, device_->clock_kernel, static_cast<unsigned>(blocks_), parameters, "clock probe");
}

std::vector<double> ClockProbe::sm_mhz() const {
  const auto blocks = static_cast<std::size_t>(blocks_), marked = static_cast<std::size_t>(marked_);
  std::vector<ClockReading> all(blocks * marked);
  if (!all.empty()) {
    // in stream order behind the marks, as a copy to plain memory is
    device_->enter();
    device_->check(device_->call.download(all.data(), memory_.address(), all.size() * sizeof(ClockReading)), "clock probe");
  }
  return sm_mhz_of(all, marked, blocks);
}

TimeMarks::TimeMarks(std::shared_ptr<const Device> device, std::int64_t room)
    : device_(std::move(device)),
      room_(room > 0 ? static_cast<std::uint64_t>(room) : throw ShapeError("time marks: room for none")),
      memory_(device_, sizeof(std::uint64_t) * (room_ + 1), "time marks") {
  clear();
}

void TimeMarks::clear() {
  Pointer at = memory_.address();
  std::uint64_t room = 0;
  void *parameters[] = {&at, &room};
  device_->enter();
  device_->check(device_->call.launch_kernel(device_->time_kernel, 1, 1, 1, 1, 1, 1, 0, device_->stream, parameters, nullptr),
                 "time marks");
}

driver::Node TimeMarks::add(driver::Graph graph) {
  Pointer at = memory_.address();
  void *parameters[] = {&at, &room_};
  return device_->add(graph, device_->time_kernel, 1, parameters, "time mark");
}

std::vector<std::int64_t> TimeMarks::times_ns() const {
  // in stream order behind the marks, as a copy to plain memory is
  device_->enter();
  std::uint64_t count = 0;
  device_->check(device_->call.download(&count, memory_.address(), sizeof count), "time marks");
  std::vector<std::int64_t> times(count < room_ ? count : room_);
  if (!times.empty()) {
    device_->check(device_->call.download(times.data(), memory_.address() + sizeof count, times.size() * sizeof times[0]),
                   "time marks");
  }
  return times;
}

}  // namespace kdvfs::graph
