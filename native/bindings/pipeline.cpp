// Python module `_pipeline`: kernel_dvfs_pipeline.rounding wraps it.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kdvfs/pipeline/interior.hpp"
#include "kdvfs/pipeline/rounding.hpp"

namespace py = pybind11;
using namespace kdvfs::pipeline;

namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <class T>
std::vector<T> values(const Array<T>& array) {
  return std::vector<T>(array.data(), array.data() + array.size());
}

template <class T>
Array<T> array(const std::vector<T>& own) {
  return Array<T>(static_cast<py::ssize_t>(own.size()), own.data());
}

Choices choices(const Array<int>& first, const Array<Ticks>& ticks, const Array<double>& cost_j) {
  return {values(first), values(ticks), values(cost_j)};
}

}  // namespace

// types are local to the module: a process may load the libraries of two folders
PYBIND11_MODULE(_pipeline, module) {
  module.doc() = "Clocks of a training pipeline: interior point, rounding to options.";
  py::class_<Edges>(module, "Edges", py::module_local())
      .def(py::init([](const Array<int>& tail, const Array<int>& head, const Array<Ticks>& lag_ticks) {
        return Edges{values(tail), values(head), values(lag_ticks)};
      }));
  py::class_<Choices>(module, "Choices", py::module_local()).def(py::init(&choices));
  // what another solve starts from
  py::class_<Start, std::shared_ptr<Start>>(module, "Start", py::module_local());
  py::class_<Point>(module, "Point", py::module_local())
      .def_property_readonly("begin", [](const Point& self) { return array(self.begin); })
      .def_property_readonly("end", [](const Point& self) { return array(self.end); })
      .def_readonly("cost_j", &Point::cost)
      .def_readonly("intercept_j", &Point::intercept)
      .def_readonly("price_w", &Point::price_w)
      .def_property_readonly("flow", [](const Point& self) { return array(self.flow); })
      .def_property_readonly("start", [](const Point& self) { return self.start; })
      .def_readonly("iterations", &Point::iterations);
  py::class_<Interior>(module, "Interior", py::module_local())
      .def(py::init([](const Edges& edges, const Choices& hull) { return Interior(edges, hull); }))
      .def_property_readonly("fastest_ticks", &Interior::fastest)
      .def_property_readonly("slowest_ticks", &Interior::slowest)
      .def("solve", &Interior::solve, py::arg("ticks"), py::arg("tolerance_j"), py::arg("slower") = nullptr,
           py::arg("faster") = nullptr, py::call_guard<py::gil_scoped_release>());
  py::class_<Search>(module, "Search", py::module_local())
      .def(py::init<const Edges&, const Choices&, const Point&, Ticks>(), py::keep_alive<1, 3>())
      // free: what may choose anew where `choice` is not empty
      .def("beam",
           [](const Search& self, int width, double stiff, bool backwards, const Array<int>& choice,
              const Array<int>& free) {
             std::vector<int> own = values(choice);
             const std::vector<int> anew = values(free);
             {
               const py::gil_scoped_release released;
               own = self.beam({width, stiff, backwards}, std::move(own), anew);
             }
             return array(own);
           })
      .def("best", [](const Search& self, int width, const std::vector<double>& stiff,
                      const std::vector<std::vector<int>>& groups, int span, int rounds, const Array<int>& start) {
        std::vector<int> own = values(start);
        {
          const py::gil_scoped_release released;
          own = self.best(width, stiff, groups, span, rounds, std::move(own));
        }
        return array(own);
      });
  module.def("repair", [](const Edges& edges, const Choices& options, const Array<int>& choice, Ticks limit,
                          bool per_second) {
    std::vector<int> own = values(choice);
    repair(Waits(edges, own.size()), options, own, limit, per_second);
    return array(own);
  });
}
