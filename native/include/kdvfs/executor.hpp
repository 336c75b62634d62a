// How a plan launches its operation: a hand-written kernel, a matrix product by cuBLASLt, or attention by cuDNN.
#pragma once

#include <memory>
#include <string>

#include "kdvfs/launch.hpp"
#include "kdvfs/plan.hpp"

namespace kdvfs {

// Launches operation Args once on the device's stream. Made for these `args`, pointers included, and launched with them.
template <typename Args>
class Executor {
 public:
  // Throws ShapeError on what the constructor would refuse, before there is memory for any tensor.
  static void require(const Device &device, Args args, const Options &options);
  Executor(Arena &arena, const Args &args, const Options &options, const std::string &name);
  void launch(const Args &args) const;
  Facts facts() const;
  std::string pinned() const { return {}; }

 private:
  const Device &device_;
  const std::string name_;
  Launch launch_;
  std::unique_ptr<Memory> scratch_;
};

template <>
class Executor<kdvfs_gemm> {
 public:
  static void require(const Device &device, const kdvfs_gemm &args, const Options &options);
  Executor(Arena &arena, const kdvfs_gemm &args, const Options &options, const std::string &name);
  ~Executor();
  void launch(const kdvfs_gemm &args) const;
  Facts facts() const;
  std::string pinned() const;

 private:
  struct Product;
  const std::unique_ptr<Product> product_;
};

// Attention by cuDNN, where the extension was built with it; else refused.
template <typename Args>
class Fused {
 public:
  static void require(const Device &device, const Args &args, const Options &options);
  Fused(Arena &arena, const Args &args, const Options &options, const std::string &name);
  ~Fused();
  void launch(const Args &args) const;
  Facts facts() const;
  std::string pinned() const { return {}; }

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

template <>
class Executor<kdvfs_attention_forward> : public Fused<kdvfs_attention_forward> {
 public:
  using Fused::Fused;
};

template <>
class Executor<kdvfs_attention_backward> : public Fused<kdvfs_attention_backward> {
 public:
  using Fused::Fused;
};

}  // namespace kdvfs
