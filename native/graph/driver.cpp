#include "driver.hpp"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "kdvfs/error.hpp"

namespace kdvfs::driver {

const Functions &open(const std::string &file) {
  static std::mutex one_at_a_time;
  static std::map<std::string, std::unique_ptr<Functions>> known;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  auto &found = known[file];
  if (found) {
    return *found;
  }
  void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw DeviceError("no CUDA driver (" + file + "): capture and measure on a machine with an NVIDIA GPU");
  }
  auto functions = std::make_unique<Functions>();
#define KDVFS_FIND(name, symbol, parameters)                                                            \
  functions->name = reinterpret_cast<Result(*) parameters>(dlsym(library, symbol));                     \
  if (!functions->name) {                                                                               \
    throw DeviceError("the CUDA driver (" + file + ") lacks " symbol ": it is older than CUDA 12.3; update it"); \
  }
  KDVFS_DRIVER_FUNCTIONS(KDVFS_FIND)
#undef KDVFS_FIND
  found = std::move(functions);
  return *found;
}

void check(const Functions &call, Result result, const std::string &what) {
  if (result == success) {
    return;
  }
  const char *name = nullptr, *text = nullptr;
  call.error_name(result, &name);
  call.error_text(result, &text);
  const std::string said = what + ": " + (name ? name : std::to_string(result)) + (text ? std::string(": ") + text : "");
  if (result == out_of_memory) {
    throw OutOfMemory(said);
  }
  throw CudaError(said);
}

}  // namespace kdvfs::driver
