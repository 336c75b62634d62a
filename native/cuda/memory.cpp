#include "kdvfs/memory.hpp"

#include <cstdint>
#include <set>

#include "kdvfs/fill.hpp"

namespace kdvfs {

namespace {

// so that 16-byte packs and every cuBLASLt algorithm can be used on the start of each tensor
constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// One operation's (M, C) is another's (1, M, C) or (B, T, NH, HS): the same bytes in the same order.
void require_same(const DeviceTensor &known, const Request &wanted, const std::string &owner) {
  if (known.element != wanted.element || known.size() != wanted.size()) {
    throw ShapeError(owner + ": " + wanted.tensor + " is " + text(wanted.element) + " " + text(wanted.shape) +
                     ", but the tensor " + wanted.shared + " that it shares is " + text(known.element) + " " +
                     text(known.shape));
  }
}

void add(std::size_t &sum, std::size_t bytes, const std::string &owner) {
  if (bytes > SIZE_MAX - sum - alignment) {
    throw OutOfMemory(owner + ": needs more bytes of device memory than can be counted");
  }
  sum += aligned(bytes);
}

void require_free(const Device &device, std::size_t bytes, const std::string &owner) {
  if (const std::size_t free = device.free_bytes(); bytes > free) {
    throw OutOfMemory(owner + ": needs " + std::to_string(bytes) + " bytes of device memory, " + std::to_string(free) +
                      " are free: end other processes on the GPU, or choose a smaller batch or a higher degree");
  }
}

// A plan repeats for seconds: what it writes must not be what it reads.
void require_apart(const std::vector<Request> &requests, const std::string &owner) {
  std::set<std::string> seen;
  for (const Request &request : requests) {
    if (!request.shared.empty() && !seen.insert(request.shared).second) {
      throw ShapeError(owner + ": the name " + request.shared + " stands for two of its tensors, expected one each");
    }
  }
}

}  // namespace

const char *text(Element element) {
  return element == Element::bf16 ? "bf16" : element == Element::float32 ? "float32" : "int32";
}

Memory::Memory(const Device &device, std::size_t bytes, const std::string &owner) : device_(device) {
  require_free(device, bytes, owner);
  const cudaError_t status = cudaMalloc(&data_, bytes);
  if (status == cudaErrorMemoryAllocation) {  // another process took it in the meantime
    cudaGetLastError();
    throw OutOfMemory(owner + ": needs " + std::to_string(bytes) +
                      " bytes of device memory, which were free a "
                      "moment ago: does another process use the GPU?");
  }
  check(status, owner);
}

Memory::~Memory() {
  cudaSetDevice(device_.index);
  cudaFree(data_);
}

Arena::Arena(std::shared_ptr<Device> device, std::size_t offset_bytes) : device_(std::move(device)) {
  const auto turn = device_->enter();
  if (offset_bytes) {
    offset_ = std::make_shared<Memory>(*device_, offset_bytes, "offset of an arena");
  }
}

std::vector<DeviceTensor> Arena::take(const std::vector<Request> &requests, const FillSettings &settings,
                                      const std::string &owner) {
  require_apart(requests, owner);
  const auto turn = device_->enter();
  // two blocks: shared tensors outlive the plan, its own go with it
  std::size_t own_bytes = 0, shared_bytes = 0;
  for (const Request &request : requests) {
    const auto known = shared_.find(request.shared);
    if (request.shared.empty()) {
      add(own_bytes, request.bytes(), owner);
    } else if (known == shared_.end()) {
      add(shared_bytes, request.bytes(), owner);
    } else {
      require_same(known->second, request, owner);
    }
  }
  std::size_t all_bytes = own_bytes;
  add(all_bytes, shared_bytes, owner);
  require_free(*device_, all_bytes, owner);
  const auto own = own_bytes ? std::make_shared<Memory>(*device_, own_bytes, owner) : nullptr;
  const auto shared = shared_bytes ? std::make_shared<Memory>(*device_, shared_bytes, owner) : nullptr;

  std::vector<DeviceTensor> tensors;
  char *next_own = own ? static_cast<char *>(own->data()) : nullptr;
  char *next_shared = shared ? static_cast<char *>(shared->data()) : nullptr;
  for (const Request &request : requests) {
    if (const auto known = shared_.find(request.shared); known != shared_.end()) {
      DeviceTensor tensor{request, known->second.data, known->second.memory};
      tensors.push_back(tensor);
      continue;
    }
    char *&next = request.shared.empty() ? next_own : next_shared;
    DeviceTensor tensor{request, next, request.shared.empty() ? own : shared};
    next += aligned(request.bytes());
    fill(tensor, settings, *device_);
    tensors.push_back(tensor);
  }
  device_->synchronize();
  // only now that nothing can fail any more
  for (const DeviceTensor &tensor : tensors) {
    if (!tensor.shared.empty()) {
      shared_.emplace(tensor.shared, tensor);
    }
  }
  return tensors;
}

std::shared_ptr<Memory> Arena::workspace(std::size_t bytes) {
  if (bytes > workspace_bytes_) {
    workspace_ = std::make_shared<Memory>(*device_, bytes, "cuBLASLt workspace");
    workspace_bytes_ = bytes;
  }
  return workspace_;
}

}  // namespace kdvfs
