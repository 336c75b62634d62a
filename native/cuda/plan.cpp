#include "kdvfs/plan.hpp"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <vector>

#include "kdvfs/checksum.hpp"
#include "kdvfs/derived.hpp"
#include "kdvfs/executor.hpp"
#include "kdvfs/work.hpp"

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

// Lists an operation's tensors as requests to the arena, for one set of buffers.
struct Lister {
  const char *op;
  const Options &options;
  int set;
  std::vector<Request> &requests;

  template <typename T>
  void input(const char *name, T *, const Shape &shape, const Fill &fill) {
    add(name, element_of<T>(), shape, fill, false);
  }
  template <typename T>
  void output(const char *name, T *, const Shape &shape) {
    add(name, element_of<T>(), shape, Fill::none(), true);
  }
  void add(const char *name, Element element, const Shape &shape, const Fill &fill, bool output) {
    Request request{name, "", element, shape, fill, output, set};
    if (const auto found = options.tensors.find(name); found != options.tensors.end()) {
      const Binding &binding = found->second;
      if (!binding.shared.empty()) {  // the first set has no suffix
        request.shared = binding.shared + (set ? "#" + std::to_string(set) : "");
      }
      if (binding.has_fill) {
        require_fit(name, element, binding.fill, fill);
        request.fill = binding.fill;
      }
    }
    requests.push_back(request);
  }
  // Token ids are filled with ids of the operation's vocabulary, everything else with numbers.
  void require_fit(const char *name, Element element, const Fill &fill, const Fill &own) const {
    if ((element == Element::int32) != (fill.kind == Fill::ids) && fill.kind != Fill::zero) {
      refuse(op, std::string("fill of ") + name, fill.kind == Fill::ids ? "ids" : "of numbers",
             element == Element::int32 ? "ids" : "one of numbers");
    }
    if (fill.kind == Fill::ids && (fill.vocabulary < 1 || fill.vocabulary > own.vocabulary)) {
      refuse(op, std::string("fill of ") + name, "of a vocabulary of " + std::to_string(fill.vocabulary),
             "one of 1 to " + std::to_string(own.vocabulary));
    }
  }
};

// Hands the arena's pointers to the operation, in the same order.
struct Assigner {
  std::vector<DeviceTensor>::const_iterator next;

  template <typename T>
  void input(const char *, T *&pointer, const Shape &, const Fill &) {
    pointer = static_cast<T *>((next++)->data);
  }
  template <typename T>
  void output(const char *, T *&pointer, const Shape &) {
    pointer = static_cast<T *>((next++)->data);
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
    require_known(args);
    Executor<Args>::require(*device(), args, options_);
    const auto turn = device()->enter();
    lay_out(args);
    for (Set &set : sets_) {
      prepare(set);
    }
    device()->synchronize();
    count_ids();
  }

  void enqueue() override {
    const Set &set = sets_[next_];
    set.executor->launch(set.args);
    next_ = next_ + 1 == sets_.size() ? 0 : next_ + 1;
  }

  std::int64_t period() const override { return static_cast<std::int64_t>(sets_.size()); }

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
    for (const Set &set : sets_) {
      for (const DeviceTensor &tensor : set.tensors) {
        bytes += static_cast<std::int64_t>(tensor.bytes());
      }
    }
    Facts all{{"operation", Operation<Args>::name},
              {"shape", name_},
              {"tensor_byte", bytes},  // of all sets
              {"variant", options_.variant},
              {"rotate", period()},
              {"seed", static_cast<std::int64_t>(options_.seed)},
              {"zipf_exponent", options_.zipf_exponent}};
    for (const auto &[name, value] : kdvfs::named(work_of(sets_.front().args, distinct_))) {
      all.emplace_back(name, value);  // of one launch
    }
    const Facts more = sets_.front().executor->facts();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string pinned() const override { return sets_.front().executor->pinned(); }
  const std::vector<DeviceTensor> &tensors() const override { return sets_.front().tensors; }

  void read(const std::string &tensor, void *to) const override {
    const DeviceTensor &found = find(tensor);
    device()->download(to, found.data, found.bytes(), name_ + ": reading " + tensor);
  }

  void write(const std::string &tensor, const void *from) override {
    const DeviceTensor &found = find(tensor);
    const auto turn = device()->enter();
    if (found.element == Element::int32) {
      require_ids(found, static_cast<const std::int32_t *>(from));
    }
    device()->upload(found.data, from, found.bytes(), name_ + ": writing " + tensor);
    count_ids();
    if (Set &set = sets_.front(); found.element == Element::int32 && set.derived) {
      // graphs captured before still use what is replaced
      retired_.emplace_back(std::move(set.derived), std::move(set.executor));
      prepare(set);
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
    std::unique_ptr<Executor<Args>> executor;
  };

  static std::string named(const Args &args) {
    Namer namer;
    Operation<Args>::settings(namer, args);
    return std::string(Operation<Args>::name) + "(" + namer.text + ")";
  }

  void require_known(const Args &args) const {
    if (args.dtype != KDVFS_BF16) {
      refuse(Operation<Args>::name, "dtype", "float32", "bf16, the only one that the CUDA kernels take");
    }
    if (options_.rotate < 1) {
      refuse(Operation<Args>::name, "rotate", std::to_string(options_.rotate), "at least 1");
    }
    Operation<Args>::check(args);
    std::vector<Request> requests;
    Operation<Args>::tensors(Lister{Operation<Args>::name, options_, 0, requests}, args);
    for (const auto &binding : options_.tensors) {
      const auto known = [&](const Request &request) { return request.tensor == binding.first; };
      if (std::none_of(requests.begin(), requests.end(), known)) {
        refuse(Operation<Args>::name, "tensors", "'" + binding.first + "'", "names of its tensors only");
      }
    }
  }

  // All sets at once: there is memory for all of them, or none is taken.
  void lay_out(const Args &args) {
    std::vector<Request> requests;
    for (int set = 0; set < options_.rotate; set++) {
      Operation<Args>::tensors(Lister{Operation<Args>::name, options_, set, requests}, args);
    }
    const auto tensors = arena_->take(requests, {options_.seed, options_.zipf_exponent}, name_);
    const auto count = static_cast<std::ptrdiff_t>(tensors.size()) / options_.rotate;
    for (auto first = tensors.begin(); first != tensors.end(); first += count) {
      Set set{args, {first, first + count}, nullptr, nullptr};
      Operation<Args>::tensors(Assigner{first}, set.args);
      sets_.push_back(std::move(set));
    }
  }

  // Different ids among the tokens that the first set looks up.
  void count_ids() {
    for (const DeviceTensor &tensor : tensors()) {
      if (tensor.tensor == "ids") {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(tensor.size()));
        device()->download(ids.data(), tensor.data, tensor.bytes(), name_ + ": reading ids");
        distinct_ = distinct_ids(ids.data(), tensor.size());
      }
    }
  }

  // What a set needs besides its tensors. A GEMM's algorithm is chosen once, for all sets.
  void prepare(Set &set) {
    set.derived = derive(*device(), set.args, name_);
    Options options = options_;
    if (const auto &first = sets_.front().executor; first && !first->pinned().empty()) {
      options.pinned = first->pinned();
    }
    set.executor = std::make_unique<Executor<Args>>(*arena_, set.args, options, name_);
  }

  void require_ids(const DeviceTensor &tensor, const std::int32_t *ids) const {
    if (!tensor.shared.empty()) {
      refuse(name_.c_str(), tensor.tensor, "shared as " + tensor.shared, "ids of its own to write to");
    }
    const auto vocabulary = vocabulary_of(tensor.tensor);
    const auto bad =
        std::find_if(ids, ids + tensor.size(), [&](std::int32_t id) { return id < 0 || id >= vocabulary; });
    if (bad != ids + tensor.size()) {
      refuse(name_.c_str(), tensor.tensor + "[" + std::to_string(bad - ids) + "]", std::to_string(*bad),
             "an id from 0 to " + std::to_string(vocabulary - 1));
    }
  }

  // Of the operation, whatever fills the tensor.
  std::int64_t vocabulary_of(const std::string &name) const {
    const Options plain;
    std::vector<Request> requests;
    Operation<Args>::tensors(Lister{Operation<Args>::name, plain, 0, requests}, sets_.front().args);
    const auto found =
        std::find_if(requests.begin(), requests.end(), [&](const Request &request) { return request.tensor == name; });
    return found->fill.vocabulary;
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
  std::vector<std::pair<std::shared_ptr<Memory>, std::unique_ptr<Executor<Args>>>> retired_;
  std::vector<Set> sets_;
  std::int64_t distinct_ = 0;
  std::size_t next_ = 0;
};

}  // namespace

#define KDVFS_DEFINE_PLAN(op)                                                                                     \
  std::unique_ptr<Plan> make_plan(std::shared_ptr<Arena> arena, const kdvfs_##op &args, const Options &options) { \
    return std::make_unique<PlanOf<kdvfs_##op>>(std::move(arena), args, options);                                 \
  }
KDVFS_OPERATIONS(KDVFS_DEFINE_PLAN)
#undef KDVFS_DEFINE_PLAN

}  // namespace kdvfs
