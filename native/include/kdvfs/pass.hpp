// A pass: plans run back to back on one stream, as a training iteration launches its kernels.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kdvfs/runnable.hpp"

namespace kdvfs {

class Pass : public Runnable {
 public:
  // Plans of a group run in order, and the group as a whole `repeat` times: a layer is cycled, not each of its
  // kernels. Throws ShapeError: no plan, a repeat below 1, plans of two devices.
  using Group = std::pair<std::vector<std::shared_ptr<Runnable>>, std::int64_t>;
  explicit Pass(std::vector<Group> groups);

  void enqueue() override;
  const std::shared_ptr<Device> &device() const override { return groups_.front().first.front()->device(); }
  std::string name() const override { return "pass"; }

 private:
  const std::vector<Group> groups_;
};

}  // namespace kdvfs
