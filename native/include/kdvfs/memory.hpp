// Device memory, and the arena that plans take their tensors from.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kdvfs/describe.hpp"
#include "kdvfs/device.hpp"

namespace kdvfs {

enum class Element { float32, bf16, int32 };

constexpr std::size_t size_of(Element element) { return element == Element::bf16 ? 2 : 4; }
const char *text(Element element);

// A block of device memory. Throws OutOfMemory before anything is allocated if it does not fit.
class Memory {
 public:
  Memory(const Device &device, std::size_t bytes, const std::string &owner);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  void *data() const { return data_; }

 private:
  const Device &device_;
  void *data_ = nullptr;
};

// What an operation wants: a tensor of its own (no shared name), or one that it shares by name.
struct Request {
  std::string tensor;  // as the operation calls it
  std::string shared;  // as the arena calls it, empty for a tensor of its own
  Element element;
  Shape shape;
  Fill fill;
  bool output;
  int set;  // of buffers, from 0: what is used in turn

  std::int64_t size() const { return elements(shape); }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(element); }
};

struct DeviceTensor : Request {
  void *data;
  std::shared_ptr<Memory> memory;
};

struct FillSettings {
  std::uint64_t seed;
  double zipf_exponent;  // of token ids; negative = uniform
};

// Tensors by name, so that the output of one plan is the input of another, and scratch that plans of one stream
// can share because they run one after the other.
class Arena {
 public:
  // offset_bytes: held before all tensors, so that these lie elsewhere. Throws OutOfMemory.
  explicit Arena(std::shared_ptr<Device> device, std::size_t offset_bytes = 0);

  // Lays out all requests, or none: names known already are shared (they must agree in size and type), the others
  // get new memory and their fill. Throws ShapeError, OutOfMemory.
  std::vector<DeviceTensor> take(const std::vector<Request> &requests, const FillSettings &settings,
                                 const std::string &owner);

  // At least `bytes` of scratch for cuBLASLt, the same block for every plan.
  std::shared_ptr<Memory> workspace(std::size_t bytes);

  const std::shared_ptr<Device> &device() const { return device_; }

 private:
  const std::shared_ptr<Device> device_;
  std::shared_ptr<Memory> offset_;
  std::map<std::string, DeviceTensor> shared_;
  std::shared_ptr<Memory> workspace_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace kdvfs
