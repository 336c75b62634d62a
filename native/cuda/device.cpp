#include "kdvfs/device.hpp"

#include <cstdio>

#include "kdvfs/blas.hpp"
#include "kdvfs/checksum.hpp"
#include "kdvfs/memory.hpp"
#include "kdvfs/stream.hpp"

namespace kdvfs {

void check(cudaError_t status, const std::string &doing) {
  if (status != cudaSuccess) {
    // a launch that failed leaves its error behind: take it, or the next call would report it again
    cudaGetLastError();
    throw CudaError(doing + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
  }
}

namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

[[noreturn]] void refuse(cudaError_t status, int index, int driver, int runtime) {
  cudaGetLastError();
  const std::string device = "CUDA device " + std::to_string(index);
  switch (status) {
    case cudaErrorInsufficientDriver:
      if (driver == 0) {
        throw DeviceError(device + ": no NVIDIA driver found: install one, or start the container with GPU access");
      }
      throw DeviceError(device + ": the driver supports CUDA " + version_text(driver) + ", older than the CUDA " +
                        version_text(runtime) +
                        " that the kernels were built with: update the driver, or build "
                        "with an older toolkit");
    case cudaErrorNoDevice:
      throw DeviceError(device + ": the driver sees no GPU (is CUDA_VISIBLE_DEVICES set?)");
    default:
      throw DeviceError(device + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
  }
}

}  // namespace

Device::Device(int index_) : index(index_) {
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    refuse(status, index, driver, runtime);
  }
  if (index < 0 || index >= count) {
    throw DeviceError("CUDA device " + std::to_string(index) + " does not exist: there are " + std::to_string(count) +
                      ", numbered from 0");
  }
  if (const cudaError_t status = cudaSetDevice(index); status != cudaSuccess) {
    refuse(status, index, driver, runtime);
  }
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

void Device::open() {
  const std::string doing = "CUDA device " + std::to_string(index);
  check(cudaGetDeviceProperties(&properties, index), doing);
  limits.sm_count = properties.multiProcessorCount;
  limits.threads_per_sm = properties.maxThreadsPerMultiProcessor;
  limits.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  limits.shared_bytes_per_sm = static_cast<int>(properties.sharedMemPerMultiprocessor);
  limits.registers_per_sm = properties.regsPerMultiprocessor;
  limits.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  const cudaError_t status = find_code();
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion) {
    throw DeviceError(doing + " (" + properties.name + ", sm_" + std::to_string(properties.major) +
                      std::to_string(properties.minor) +
                      "): the kernels were not built for its architecture: build "
                      "again with CUDAARCHS=" +
                      std::to_string(properties.major) + std::to_string(properties.minor));
  }
  check(status, doing + ": kernels");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), doing + ": stream");
  check(cublasLtCreate(&blas), doing + ": cuBLASLt");
}

void Device::close() noexcept {
  cudaSetDevice(index);
  if (blas) {
    cublasLtDestroy(blas);
  }
  if (stream) {
    cudaStreamDestroy(stream);
  }
}

Device::~Device() { close(); }

std::unique_lock<std::recursive_mutex> Device::enter() const {
  std::unique_lock<std::recursive_mutex> turn(mutex_);
  check(cudaSetDevice(index), "CUDA device " + std::to_string(index));
  return turn;
}

void Device::synchronize() const {
  enter().unlock();  // waiting keeps nobody out
  check(cudaStreamSynchronize(stream), "CUDA device " + std::to_string(index) + ": running kernels");
}

std::size_t Device::free_bytes() const {
  const auto turn = enter();
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "CUDA device " + std::to_string(index) + ": free memory");
  return free;
}

void Device::upload(void *to, const void *from, std::size_t bytes, const std::string &doing) const {
  const auto turn = enter();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), doing);
  check(cudaStreamSynchronize(stream), doing);
}

void Device::download(void *to, const void *from, std::size_t bytes, const std::string &doing) const {
  const auto turn = enter();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), doing);
  check(cudaStreamSynchronize(stream), doing);
}

std::string Device::uuid() const {
  const auto *byte = reinterpret_cast<const unsigned char *>(properties.uuid.bytes);
  std::string text = "GPU-";
  for (int i = 0; i < 16; i++) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte[i]);
    text += (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "");
    text += hex;
  }
  return text;
}

double Device::copy_ms(std::size_t bytes, int n) const {
  const std::string doing = "copy of " + std::to_string(bytes) + " bytes";
  if (bytes < 1 || n < 1) {
    throw ShapeError(doing + ": number of copies is " + std::to_string(n) + ", expected at least 1 of at least 1 byte");
  }
  const Memory from(*this, bytes, doing), to(*this, bytes, doing);
  check(cudaMemsetAsync(from.data(), 0x5a, bytes, stream), doing);
  Stopwatch watch(*this);
  for (int i = -1; i < n; i++) {
    if (i == 0) {  // the first copy warms up
      watch.start();
    }
    check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream), doing);
  }
  return watch.stop_ms();
}

}  // namespace kdvfs
