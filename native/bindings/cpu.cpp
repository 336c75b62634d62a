// Python extension `_cpu`: the C reference on NumPy arrays. Checks what the C functions take for granted
// (type, shape, layout), allocates the outputs, and computes without the GIL. Holds no arithmetic.
//
// bf16 tensors are uint16 arrays of their bits. All tensors of a call have one element type; mean and
// rstd are float32. A refused array raises ValueError: "<op>: <argument> is <what>, expected <what>".
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kdvfs/ref.h"

namespace py = pybind11;

namespace {

using Shape = std::vector<py::ssize_t>;

std::string text(const py::array &array) {
  std::string shape;
  for (py::ssize_t axis = 0; axis < array.ndim(); axis++) {
    shape += (axis ? ", " : "") + std::to_string(array.shape(axis));
  }
  return std::string(py::str(array.dtype())) + " (" + shape + ")";
}

std::string text(const Shape &shape) {
  std::string out;
  for (const py::ssize_t length : shape) {
    out += (out.empty() ? "" : ", ") + std::to_string(length);
  }
  return "(" + out + ")";
}

py::dtype numpy_type(kdvfs_dtype dtype) {
  return dtype == KDVFS_BF16 ? py::dtype::of<std::uint16_t>() : py::dtype::of<float>();
}

// The arrays of one call of one kernel. The first, of shape (M, C), fixes M, C and the element type;
// the others are held against them.
class Call {
 public:
  Call(const char *op, const char *name, const py::array &first) : op_(op) {
    if (first.dtype().equal(numpy_type(KDVFS_FLOAT32))) {
      dtype = KDVFS_FLOAT32;
    } else if (first.dtype().equal(numpy_type(KDVFS_BF16))) {
      dtype = KDVFS_BF16;
    } else {
      refuse(name, first, "float32 or uint16 (bf16 bits)");
    }
    if (first.ndim() != 2 || first.size() == 0) {
      refuse(name, first, "shape (M, C) with M, C >= 1");
    }
    M = first.shape(0);
    C = first.shape(1);
  }

  const void *tensor(const char *name, const py::array &array, const Shape &shape) const {
    return checked(name, array, numpy_type(dtype), shape);
  }

  const float *floats(const char *name, const py::array &array, const Shape &shape) const {
    return static_cast<const float *>(checked(name, array, numpy_type(KDVFS_FLOAT32), shape));
  }

  py::array output(const Shape &shape) const { return py::array(numpy_type(dtype), shape); }

  py::ssize_t M = 0, C = 0;
  kdvfs_dtype dtype = KDVFS_FLOAT32;

 private:
  const void *checked(const char *name, const py::array &array, const py::dtype &type,
                      const Shape &shape) const {
    if (!array.dtype().equal(type) || Shape(array.shape(), array.shape() + array.ndim()) != shape) {
      refuse(name, array, std::string(py::str(type)) + " " + text(shape));
    }
    // no silent copy: a caller who hands in a view should know that it is not what will be read
    const int flags = array.flags();
    if (!(flags & py::array::c_style) || !(flags & py::detail::npy_api::NPY_ARRAY_ALIGNED_)) {
      refuse(name, array, "a C-contiguous, aligned array", " but strided or unaligned");
    }
    return array.data();
  }

  [[noreturn]] void refuse(const char *name, const py::array &array, const std::string &expected,
                           const char *but = "") const {
    throw py::value_error(std::string(op_) + ": " + name + " is " + text(array) + but + ", expected " + expected);
  }

  const char *op_;
};

template <typename Args>
void run(void (*function)(const Args *), const Args &args) {
  const py::gil_scoped_release release;
  function(&args);
}

py::tuple layernorm_forward(const py::array &inp, const py::array &gamma, const py::array &beta, float eps) {
  const char *op = "layernorm_forward";
  const Call call(op, "inp", inp);
  if (!(eps > 0.0f) || std::isinf(eps)) {
    throw py::value_error(std::string(op) + ": eps is " + std::to_string(eps) + ", expected > 0 and finite");
  }
  kdvfs_layernorm_forward args{};
  args.M = call.M;
  args.C = call.C;
  args.dtype = call.dtype;
  args.eps = eps;
  args.inp = call.tensor("inp", inp, {call.M, call.C});
  args.gamma = call.tensor("gamma", gamma, {call.C});
  args.beta = call.tensor("beta", beta, {call.C});
  py::array out = call.output({call.M, call.C});
  py::array_t<float> mean(call.M), rstd(call.M);
  args.out = out.mutable_data();
  args.mean = mean.mutable_data();
  args.rstd = rstd.mutable_data();
  run(kdvfs_ref_layernorm_forward, args);
  return py::make_tuple(out, mean, rstd);
}

py::tuple layernorm_backward(const py::array &dout, const py::array &inp, const py::array &gamma,
                             const py::array &mean, const py::array &rstd, const py::array &dinp_in,
                             const py::array &dgamma_in, const py::array &dbeta_in) {
  const Call call("layernorm_backward", "dout", dout);
  kdvfs_layernorm_backward args{};
  args.M = call.M;
  args.C = call.C;
  args.dtype = call.dtype;
  args.dout = call.tensor("dout", dout, {call.M, call.C});
  args.inp = call.tensor("inp", inp, {call.M, call.C});
  args.gamma = call.tensor("gamma", gamma, {call.C});
  args.mean = call.floats("mean", mean, {call.M});
  args.rstd = call.floats("rstd", rstd, {call.M});
  args.dinp_in = call.tensor("dinp_in", dinp_in, {call.M, call.C});
  args.dgamma_in = call.tensor("dgamma_in", dgamma_in, {call.C});
  args.dbeta_in = call.tensor("dbeta_in", dbeta_in, {call.C});
  py::array dinp_out = call.output({call.M, call.C});
  py::array dgamma_out = call.output({call.C});
  py::array dbeta_out = call.output({call.C});
  args.dinp_out = dinp_out.mutable_data();
  args.dgamma_out = dgamma_out.mutable_data();
  args.dbeta_out = dbeta_out.mutable_data();
  run(kdvfs_ref_layernorm_backward, args);
  return py::make_tuple(dinp_out, dgamma_out, dbeta_out);
}

}  // namespace

PYBIND11_MODULE(_cpu, m, py::mod_gil_not_used()) {
  m.doc() = "C reference of the kernels on NumPy arrays: float32, or bf16 as uint16 bits.";
  m.def("layernorm_forward", &layernorm_forward, py::arg("inp"), py::arg("gamma"), py::arg("beta"),
        py::arg("eps") = 1e-5f,
        "inp (M, C), gamma (C), beta (C) -> out (M, C), mean (M) float32, rstd (M) float32");
  m.def("layernorm_backward", &layernorm_backward, py::arg("dout"), py::arg("inp"), py::arg("gamma"),
        py::arg("mean"), py::arg("rstd"), py::arg("dinp_in"), py::arg("dgamma_in"), py::arg("dbeta_in"),
        "dout, inp, dinp_in (M, C), gamma, dgamma_in, dbeta_in (C), mean, rstd (M) float32\n"
        "-> dinp_in + dinp (M, C), dgamma_in + dgamma (C), dbeta_in + dbeta (C)");
}
