// A library of operators, as a user would bring one for model.libraries.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace {

at::Tensor Scaled(const at::Tensor& values, double factor) { return values * factor; }

}  // namespace

TORCH_LIBRARY(slackline_test, library) { library.def("scaled(Tensor values, float factor) -> Tensor", &Scaled); }
