#include "kdvfs/pass.hpp"

#include "kdvfs/describe.hpp"

namespace kdvfs {

Pass::Pass(std::vector<Group> groups) : groups_(std::move(groups)) {
  if (groups_.empty()) {
    refuse("pass", "number of groups", "0", "at least 1");
  }
  for (const auto &[plans, repeat] : groups_) {
    if (plans.empty() || repeat < 1) {
      refuse("pass", "a group", std::to_string(plans.size()) + " plans x " + std::to_string(repeat),
             "at least one plan, repeated at least once");
    }
    for (const auto &plan : plans) {
      if (!plan) {
        refuse("pass", "a plan", "None", "a Plan or a Pass");
      }
      if (plan->device()->stream != device()->stream) {
        refuse("pass", plan->name(), "on another device", "the device of the first plan");
      }
    }
  }
}

void Pass::enqueue() {
  for (const auto &[plans, repeat] : groups_) {
    for (std::int64_t i = 0; i < repeat; i++) {
      for (const auto &plan : plans) {
        plan->enqueue();
      }
    }
  }
}

}  // namespace kdvfs
