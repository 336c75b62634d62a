#include "kdvfs/plan.hpp"

#include <algorithm>

#include "kdvfs/checksum.hpp"
#include "kdvfs/derived.hpp"
#include "kdvfs/executor.hpp"

namespace kdvfs {

namespace {

template <typename T>
constexpr Element element_of() {
  using Value = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Value, float>) {
    return Element::float32;
  } else if constexpr (std::is_same_v<Value, std::int32_t>) {
    return Element::int32;
  } else {
    return Element::bf16;
  }
}

// Lists an operation's tensors as requests to the arena.
struct Lister {
  const Options &options;
  std::string set;  // of buffers; the first has no suffix
  std::vector<Request> requests;

  template <typename T>
  void input(const char *name, T *, const Shape &shape, const Fill &fill) {
    add(name, element_of<T>(), shape, fill, false);
  }
  template <typename T>
  void output(const char *name, T *, const Shape &shape) {
    add(name, element_of<T>(), shape, Fill::none(), true);
  }
  void add(const char *name, Element element, const Shape &shape, const Fill &fill, bool output) {
    Request request{name, "", element, shape, fill, output};
    if (const auto found = options.tensors.find(name); found != options.tensors.end()) {
      const Binding &binding = found->second;
      request.shared = binding.shared.empty() ? "" : binding.shared + set;
      request.fill = binding.has_fill ? binding.fill : fill;
    }
    requests.push_back(request);
  }
};

// Hands the arena's pointers to the operation, in the same order.
struct Assigner {
  const std::vector<DeviceTensor> &tensors;
  std::size_t next = 0;

  template <typename T>
  void input(const char *, T *&pointer, const Shape &, const Fill &) {
    pointer = static_cast<T *>(tensors[next++].data);
  }
  template <typename T>
  void output(const char *, T *&pointer, const Shape &) {
    pointer = static_cast<T *>(tensors[next++].data);
  }
};

struct Namer {
  std::string text;
  void add(const char *name, const std::string &value) {
    text += (text.empty() ? "" : ", ") + std::string(name) + "=" + value;
  }
  void operator()(const char *name, kdvfs_layout layout) {
    add(name, layout == KDVFS_TN ? "TN" : layout == KDVFS_NN ? "NN" : "NT");
  }
  template <typename T>
  void operator()(const char *name, T value) {
    add(name, std::to_string(value));
  }
};

template <typename Args>
class PlanOf : public Plan {
 public:
  PlanOf(std::shared_ptr<Arena> arena, const Args &args, const Options &options)
      : arena_(std::move(arena)), name_(named(args)), options_(options) {
    require_known(args, options);
    for (int set = 0; set < options.rotate; set++) {
      sets_.push_back(lay_out(args, options, set));
    }
    executor_ = std::make_unique<Executor<Args>>(*arena_, sets_.front().args, options, name_);
    device()->synchronize();
  }

  void enqueue() override {
    executor_->launch(sets_[next_].args);
    next_ = next_ + 1 == sets_.size() ? 0 : next_ + 1;
  }

  std::uint64_t checksum() const override {
    std::vector<DeviceTensor> outputs;
    for (const Set &set : sets_) {
      std::copy_if(set.tensors.begin(), set.tensors.end(), std::back_inserter(outputs),
                   [](const DeviceTensor &tensor) { return tensor.output; });
    }
    return kdvfs::checksum(outputs, *device());
  }

  Facts facts() const override {
    std::int64_t bytes = 0;
    for (const DeviceTensor &tensor : tensors()) {
      bytes += static_cast<std::int64_t>(tensor.bytes());
    }
    Facts all{{"operation", Operation<Args>::name},
              {"shape", name_},
              {"tensor_byte", bytes},
              {"variant", options_.variant},
              {"rotate", static_cast<std::int64_t>(sets_.size())},
              {"seed", static_cast<std::int64_t>(options_.seed)},
              {"zipf_exponent", options_.zipf_exponent}};
    const Facts more = executor_->facts();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string pinned() const override { return executor_->pinned(); }
  const std::vector<DeviceTensor> &tensors() const override { return sets_.front().tensors; }

  void read(const std::string &tensor, void *to) const override {
    const DeviceTensor &found = find(tensor);
    device()->download(to, found.data, found.bytes(), name_ + ": reading " + tensor);
  }

  void write(const std::string &tensor, const void *from) override {
    const DeviceTensor &found = find(tensor);
    device()->upload(found.data, from, found.bytes(), name_ + ": writing " + tensor);
    Set &set = sets_.front();
    if (set.derived) {  // made of the values just replaced, and the launch may depend on how much there is
      set.derived = derive(*device(), set.args, name_);
      executor_ = std::make_unique<Executor<Args>>(*arena_, set.args, options_, name_);
      device()->synchronize();
    }
  }

  const std::shared_ptr<Device> &device() const override { return arena_->device(); }
  std::string name() const override { return name_; }

 private:
  struct Set {
    Args args;
    std::vector<DeviceTensor> tensors;
    std::shared_ptr<Memory> derived;
  };

  static std::string named(const Args &args) {
    Namer namer;
    Operation<Args>::settings(namer, args);
    return std::string(Operation<Args>::name) + "(" + namer.text + ")";
  }

  void require_known(const Args &args, const Options &options) const {
    if (args.dtype != KDVFS_BF16) {
      refuse(Operation<Args>::name, "dtype", "float32", "bf16, the only one that the CUDA kernels take");
    }
    if (options.rotate < 1) {
      refuse(Operation<Args>::name, "rotate", std::to_string(options.rotate), "at least 1");
    }
    Operation<Args>::check(args);
    Lister lister{options, "", {}};
    Args copy = args;
    Operation<Args>::tensors(lister, copy);
    for (const auto &[tensor, binding] : options.tensors) {
      const auto known = [&](const Request &request) { return request.tensor == tensor; };
      if (std::none_of(lister.requests.begin(), lister.requests.end(), known)) {
        refuse(Operation<Args>::name, "tensors", "'" + tensor + "'", "names of its tensors only");
      }
    }
  }

  Set lay_out(const Args &args, const Options &options, int number) const {
    device()->enter();
    Set set{args, {}, nullptr};
    Lister lister{options, number ? "#" + std::to_string(number) : "", {}};
    Operation<Args>::tensors(lister, set.args);
    set.tensors = arena_->take(lister.requests, {options.seed + static_cast<std::uint64_t>(number), options.zipf_exponent},
                               name_);
    Operation<Args>::tensors(Assigner{set.tensors}, set.args);
    set.derived = derive(*device(), set.args, name_);
    return set;
  }

  const DeviceTensor &find(const std::string &name) const {
    for (const DeviceTensor &tensor : tensors()) {
      if (tensor.tensor == name) {
        return tensor;
      }
    }
    refuse(Operation<Args>::name, "tensor", "'" + name + "'", "the name of one of its tensors");
  }

  const std::shared_ptr<Arena> arena_;  // first, so that it goes last: it keeps the device
  const std::string name_;
  const Options options_;
  std::vector<Set> sets_;
  std::size_t next_ = 0;
  std::unique_ptr<Executor<Args>> executor_;
};

}  // namespace

#define KDVFS_DEFINE_PLAN(op)                                                                                   \
  std::unique_ptr<Plan> make_plan(std::shared_ptr<Arena> arena, const kdvfs_##op &args, const Options &options) { \
    return std::make_unique<PlanOf<kdvfs_##op>>(std::move(arena), args, options);                               \
  }
KDVFS_OPERATIONS(KDVFS_DEFINE_PLAN)
#undef KDVFS_DEFINE_PLAN

}  // namespace kdvfs
