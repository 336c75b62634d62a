#include "graph.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>

#include "kdvfs/error.hpp"

namespace kdvfs::graph {

namespace {

// Parameters of a kernel: one block given in `extra` (cuBLAS does so, and kernelParams is null there), or one by one.
void read_parameters(const driver::Functions &call, Node &node) {
  const driver::KernelParams &kernel = node.kernel;
  for (std::size_t number = 0;; number++) {
    std::size_t offset = 0, size = 0;
    const driver::Result result = kernel.func ? call.function_parameter(kernel.func, number, &offset, &size)
                                              : call.kernel_parameter(kernel.kern, number, &offset, &size);
    if (result != driver::success) {
      break;  // there are no more
    }
    node.layout.emplace_back(offset, size);
  }
  if (!kernel.kernel_params && kernel.extra) {
    const char *block = nullptr;
    std::size_t size = 0;
    for (void **word = kernel.extra; *word != driver::extra_end; word += 2) {
      if (*word == driver::extra_buffer) {
        block = static_cast<const char *>(word[1]);
      } else if (*word == driver::extra_size) {
        size = *static_cast<const std::size_t *>(word[1]);
      } else {
        break;
      }
    }
    node.is_packed = block != nullptr;
    node.parameters.assign(block ? block : "", block ? size : 0);
    return;
  }
  for (std::size_t number = 0; kernel.kernel_params && number < node.layout.size(); number++) {
    const auto [offset, size] = node.layout[number];
    node.parameters.resize(std::max(node.parameters.size(), offset + size));
    node.parameters.replace(offset, size, static_cast<const char *>(kernel.kernel_params[number]), size);
  }
}

void read_kernel(const Device &device, Node &node) {
  const driver::Functions &call = device.call;
  device.check(call.kernel_get(node.handle, &node.kernel), "kernel node");
  const char *name = nullptr;
  if (node.kernel.func) {
    call.function_name(&name, node.kernel.func);
  }
  if (!name && node.kernel.kern) {
    call.kernel_name(&name, node.kernel.kern);
  }
  node.function = name ? name : "?";
  read_parameters(call, node);
  driver::AttributeValue value{};
  if (call.kernel_attribute(node.handle, driver::cluster_dimension, &value) == driver::success) {
    node.cluster[0] = value.cluster.x;
    node.cluster[1] = value.cluster.y;
    node.cluster[2] = value.cluster.z;
  }
  value = {};
  if (call.kernel_attribute(node.handle, driver::cooperative, &value) == driver::success) {
    node.is_cooperative = value.cooperative != 0;
  }
  value = {};
  if (call.kernel_attribute(node.handle, driver::priority, &value) == driver::success) {
    node.priority = value.priority;
  }
}

}  // namespace

Captured::Captured(std::shared_ptr<const Device> device, std::uintptr_t handle) : device_(std::move(device)) {
  const driver::Functions &call = device_->call;
  const auto graph = reinterpret_cast<driver::Graph>(handle);
  if (!graph) {
    throw ShapeError("graph: the handle is null");
  }
  device_->enter();
  std::size_t count = 0, edge_count = 0;
  device_->check(call.graph_nodes(graph, nullptr, &count), "nodes of the graph");
  std::vector<driver::Node> raw(count);
  device_->check(call.graph_nodes(graph, raw.data(), &count), "nodes of the graph");
  device_->check(call.graph_edges(graph, nullptr, nullptr, nullptr, &edge_count), "edges of the graph");
  std::vector<driver::Node> from(edge_count), to(edge_count);
  std::vector<driver::EdgeData> data(edge_count);
  device_->check(call.graph_edges(graph, from.data(), to.data(), data.data(), &edge_count), "edges of the graph");

  std::unordered_map<driver::Node, std::size_t> created;
  for (std::size_t i = 0; i < count; i++) {
    created[raw[i]] = i;
  }
  std::vector<std::vector<std::size_t>> next(count);
  std::vector<int> waits(count, 0);
  for (std::size_t i = 0; i < edge_count; i++) {
    next[created.at(from[i])].push_back(created.at(to[i]));
    waits[created.at(to[i])]++;
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<std::size_t>> ready;
  for (std::size_t i = 0; i < count; i++) {
    if (!waits[i]) {
      ready.push(i);
    }
  }
  std::vector<std::size_t> place(count);
  while (!ready.empty()) {
    const std::size_t i = ready.top();
    ready.pop();
    Node node;
    node.handle = raw[i];
    device_->check(call.node_type(node.handle, &node.type), "type of a node");
    if (node.type == driver::kernel_node) {
      read_kernel(*device_, node);
    } else if (node.type == driver::memset_node) {
      device_->check(call.memset_get(node.handle, &node.memset), "memset node");
    } else if (node.type == driver::memcpy_node) {
      device_->check(call.copy_get(node.handle, &node.copy), "copy node");
    }
    place[i] = nodes.size();
    nodes.push_back(std::move(node));
    for (const std::size_t j : next[i]) {
      if (--waits[j] == 0) {
        ready.push(j);
      }
    }
  }
  for (std::size_t i = 0; i < edge_count; i++) {
    edges.push_back({place[created.at(from[i])], place[created.at(to[i])], data[i]});
  }
}

driver::Node Captured::add(driver::Graph graph, const Node &node) const {
  const driver::Functions &call = device_->call;
  driver::Node made = nullptr;
  switch (node.type) {
    case driver::kernel_node:
      device_->check(call.kernel_add(&made, graph, nullptr, 0, &node.kernel), "kernel " + node.function);
      // clusters, cooperative launch, shared-memory carve-out, priority: without them it is another kernel
      device_->check(call.kernel_copy_attributes(made, node.handle), "attributes of " + node.function);
      break;
    case driver::memset_node:
      device_->check(call.memset_add(&made, graph, nullptr, 0, &node.memset, device_->context), "memset");
      break;
    case driver::memcpy_node:
      device_->check(call.copy_add(&made, graph, nullptr, 0, &node.copy, device_->context), "copy");
      break;
    case driver::empty_node:
      device_->check(call.empty_add(&made, graph, nullptr, 0), "empty node");
      break;
    default:
      throw ShapeError("a graph node of type " + std::to_string(node.type) + " cannot be copied");
  }
  return made;
}

// What waits for what among the nodes at `places`: edges between two of them, and, where nodes between them are left out,
// an edge for the path through those.
std::vector<Edge> Captured::edges_among(const std::vector<std::size_t> &places) const {
  std::vector<bool> is_kept(nodes.size(), false);
  for (const std::size_t at : places) {
    is_kept[at] = true;
  }
  std::vector<std::vector<const Edge *>> into(nodes.size());
  for (const Edge &edge : edges) {
    into[edge.to].push_back(&edge);
  }
  std::vector<std::map<std::size_t, driver::EdgeData>> before(nodes.size());  // the nearest kept nodes
  std::vector<Edge> among;
  for (std::size_t at = 0; at < nodes.size(); at++) {  // in an order that respects every edge
    for (const Edge *edge : into[at]) {
      if (is_kept[edge->from]) {
        before[at].emplace(edge->from, is_kept[at] ? edge->data : driver::EdgeData{});
      }
    }
    for (const Edge *edge : into[at]) {
      if (!is_kept[edge->from]) {
        for (const auto &[from, how] : before[edge->from]) {
          before[at][from] = driver::EdgeData{};  // waits for its end, whatever a direct edge allows
        }
      }
    }
    if (is_kept[at]) {
      for (const auto &[from, how] : before[at]) {
        among.push_back({from, at, how});
      }
    }
  }
  return among;
}

void Captured::check(const std::vector<std::size_t> &places, int repeat) const {
  if (repeat < 1) {
    throw ShapeError("graph: repeated less than once");
  }
  for (const std::size_t at : places) {
    if (at >= nodes.size()) {
      throw ShapeError("graph: node " + std::to_string(at) + " of " + std::to_string(nodes.size()));
    }
  }
}

std::unique_ptr<Loop> Captured::instantiated(const std::function<void(driver::Graph)> &fill, std::size_t count,
                                             std::shared_ptr<void> keeps) const {
  const driver::Functions &call = device_->call;
  device_->enter();
  driver::Graph graph = nullptr;
  device_->check(call.graph_create(&graph, 0), "graph");
  driver::Exec exec = nullptr;
  try {
    fill(graph);
    device_->check(call.instantiate(&exec, graph, 0), "graph of " + std::to_string(count) + " nodes");
  } catch (...) {
    call.graph_destroy(graph);
    throw;
  }
  call.graph_destroy(graph);
  return std::make_unique<Loop>(device_, shared_from_this(), std::move(keeps), exec);
}

std::unique_ptr<Loop> Captured::chain(const std::vector<std::size_t> &places, int repeat, std::uint64_t rest_ns,
                                      const std::vector<std::size_t> &marked,
                                      std::shared_ptr<ClockProbe> probe) const {
  check(places, repeat);
  if (places.empty() && !rest_ns) {
    throw ShapeError("graph: neither nodes nor a rest");
  }
  if (!marked.empty() && !probe) {
    throw ShapeError("graph: nodes to mark, and no probe");
  }
  const std::vector<bool> is_marked = among(places, marked);
  return instantiated(
      [&](driver::Graph graph) {
        std::vector<driver::Node> made;
        for (int round = 0; round < repeat; round++) {
          for (std::size_t number = 0; number < places.size(); number++) {
            if (is_marked[number]) {
              made.push_back(probe->add(graph));
            }
            made.push_back(add(graph, nodes[places[number]]));
            if (is_marked[number]) {
              made.push_back(probe->add(graph));
            }
          }
          if (rest_ns) {
            void *parameters[] = {&rest_ns};
            made.push_back(device_->add(graph, device_->rest_kernel, 1, parameters, "rest"));
          }
        }
        link(graph, made);
      },
      (places.size() + (rest_ns ? 1 : 0)) * static_cast<std::size_t>(repeat), probe);
}

std::unique_ptr<Loop> Captured::timed(const std::vector<std::size_t> &places, const std::vector<std::size_t> &marked,
                                      std::shared_ptr<TimeMarks> marks) const {
  check(places, 1);
  const std::vector<bool> is_marked = among(places, marked);
  return instantiated(
      [&](driver::Graph graph) {
        std::vector<driver::Node> made;
        for (std::size_t number = 0; number < places.size(); number++) {
          if (is_marked[number]) {
            made.push_back(marks->add(graph));
          }
          made.push_back(add(graph, nodes[places[number]]));
        }
        made.push_back(marks->add(graph));
        made.push_back(marks->add(graph));
        link(graph, made);
      },
      places.size() + marked.size() + 2, marks);
}

// Which of the places are marked: readings come in the order of the chain.
std::vector<bool> Captured::among(const std::vector<std::size_t> &places, const std::vector<std::size_t> &marked) const {
  std::vector<bool> is_marked(places.size(), false);
  for (std::size_t i = 0; i < marked.size(); i++) {
    if (marked[i] >= places.size() || (i && marked[i] <= marked[i - 1])) {
      throw ShapeError("graph: node " + std::to_string(marked[i]) + " of " + std::to_string(places.size()) +
                       " to mark, not in rising order or not there");
    }
    is_marked[marked[i]] = true;
  }
  return is_marked;
}

void Captured::link(driver::Graph graph, const std::vector<driver::Node> &chain) const {
  const std::vector<driver::EdgeData> data(chain.size() - 1);
  if (!data.empty()) {
    device_->check(device_->call.graph_add_edges(graph, chain.data(), chain.data() + 1, data.data(), data.size()), "edges");
  }
}

std::unique_ptr<Loop> Captured::loop(const std::vector<std::size_t> &places, int repeat, bool keep_edges) const {
  if (!keep_edges) {
    return chain(places, repeat, 0, {}, nullptr);
  }
  check(places, repeat);
  if (places.empty()) {
    throw ShapeError("graph: no nodes");
  }
  return instantiated(
      [&](driver::Graph graph) {
        std::vector<driver::Node> from, to;
        std::vector<driver::EdgeData> data;
        const auto join = [&](driver::Node first, driver::Node second, driver::EdgeData how) {
          from.push_back(first);
          to.push_back(second);
          data.push_back(how);
        };
        const std::vector<Edge> own = edges_among(places);
        driver::Node last = nullptr;  // what a whole round has led to
        for (int round = 0; round < repeat; round++) {
          std::unordered_map<std::size_t, driver::Node> made;
          for (const std::size_t at : places) {
            made[at] = add(graph, nodes[at]);
          }
          std::unordered_map<std::size_t, bool> has_before, has_after;
          for (const Edge &edge : own) {
            join(made.at(edge.from), made.at(edge.to), edge.data);
            has_before[edge.to] = has_after[edge.from] = true;
          }
          if (repeat == 1) {
            continue;
          }
          driver::Node end = nullptr;
          device_->check(device_->call.empty_add(&end, graph, nullptr, 0), "empty node");
          for (const auto &[at, node] : made) {
            if (last && !has_before[at]) {
              join(last, node, {});
            }
            if (!has_after[at]) {
              join(node, end, {});
            }
          }
          last = end;
        }
        if (!from.empty()) {
          device_->check(device_->call.graph_add_edges(graph, from.data(), to.data(), data.data(), from.size()), "edges");
        }
      },
      places.size() * static_cast<std::size_t>(repeat));
}

Loop::~Loop() { device_->call.exec_destroy(exec_); }

void Loop::run(int count) const {
  device_->enter();
  for (int i = 0; i < count; i++) {
    device_->check(device_->call.exec_launch(exec_, device_->stream), "launch of a graph");
  }
}

double Loop::time(int count) const {
  device_->enter();
  Event begin(device_), end(device_);
  begin.record();
  run(count);
  end.record();
  end.wait();
  return end.since_ms(begin);
}

}  // namespace kdvfs::graph
