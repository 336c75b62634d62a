// What a kernel reads besides the operation's tensors, made once on the host when a plan is made.
#pragma once

#include <memory>
#include <string>

#include "kdvfs/buckets.hpp"
#include "kdvfs/memory.hpp"

namespace kdvfs {

// Most operations need nothing of the kind.
template <typename Args>
std::shared_ptr<Memory> derive(const Device &, Args &, const std::string &) {
  return nullptr;
}

// Tokens in buckets by id. Sorting them for each launch, as a trainer must, would be time of the host.
inline std::shared_ptr<Memory> derive(const Device &device, kdvfs_wte_backward &args, const std::string &owner) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(args.M));
  device.download(ids.data(), args.ids, ids.size() * sizeof ids[0], owner);
  const Buckets made = make_buckets(ids.data(), args.M, args.V, args.C);
  const std::size_t bucket_bytes = made.buckets.size() * sizeof made.buckets[0];
  const std::size_t order_bytes = made.order.size() * sizeof made.order[0];
  auto memory = std::make_shared<Memory>(device, bucket_bytes + order_bytes, owner);
  char *const order = static_cast<char *>(memory->data()) + bucket_bytes;
  device.upload(memory->data(), made.buckets.data(), bucket_bytes, owner);
  device.upload(order, made.order.data(), order_bytes, owner);
  args.bucket_count = static_cast<std::int64_t>(made.buckets.size());
  args.buckets = static_cast<const kdvfs_bucket *>(memory->data());
  args.order = reinterpret_cast<const std::int32_t *>(order);
  return memory;
}

}  // namespace kdvfs
