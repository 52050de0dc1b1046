#include "worker/model/networks/recompute.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "worker/model/networks/autocast.h"

namespace slackline::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Computation : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> body;
  std::vector<at::Tensor> parameters;
  Precision precision = Precision::kFloat32;
};

constexpr char kComputation[] = "computation";

// The parameters are inputs, too: else nothing would need a gradient where x does not.
struct Function : torch::autograd::Function<Function> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList /*parameters*/,
                            const c10::intrusive_ptr<Computation>& computation) {
    context->save_for_backward({x});
    context->saved_data[kComputation] = at::IValue::make_capsule(computation);
    return computation->body(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& slopes) {
    const auto computation =
        c10::static_intrusive_pointer_cast<Computation>(context->saved_data[kComputation].toCapsule());
    const at::Tensor kept = context->get_saved_variables().front();
    const bool needed = context->needs_input_grad(0);
    const at::Tensor x = kept.detach().requires_grad_(needed);
    variable_list inputs = computation->parameters;
    if (needed) inputs.insert(inputs.begin(), x);
    variable_list made;
    {
      const at::AutoGradMode enabled(true);
      const Autocast autocast(x.device(), computation->precision);
      const at::Tensor y = computation->body(x);
      made = torch::autograd::grad({y}, inputs, {slopes.front()}, /*retain_graph=*/false, /*create_graph=*/false,
                                   /*allow_unused=*/true);
    }
    if (!needed) made.insert(made.begin(), at::Tensor());
    made.emplace_back();  // of the computation
    return made;
  }
};

}  // namespace

at::Tensor Recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters, Precision precision,
                      std::function<at::Tensor(const at::Tensor&)> body) {
  if (!at::GradMode::is_enabled() || (parameters.empty() && !x.requires_grad())) return body(x);
  auto computation = c10::make_intrusive<Computation>();
  computation->body = std::move(body);
  computation->parameters = parameters;
  computation->precision = precision;
  return Function::apply(x, at::TensorList(parameters), computation);
}

}  // namespace slackline::worker
