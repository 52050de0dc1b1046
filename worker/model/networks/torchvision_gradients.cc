#include "worker/model/networks/torchvision_gradients.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace slackline::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Signatures are those of torchvision 0.28.
using RoiAlignForward = at::Tensor(const at::Tensor& input, const at::Tensor& boxes, double scale, c10::SymInt height,
                                   c10::SymInt width, int64_t samples, bool aligned);
using RoiAlignBackward = at::Tensor(const at::Tensor& gradient, const at::Tensor& boxes, double scale,
                                    c10::SymInt height, c10::SymInt width, c10::SymInt batch, c10::SymInt channels,
                                    c10::SymInt input_height, c10::SymInt input_width, int64_t samples, bool aligned);

template <typename Signature>
c10::TypedOperatorHandle<Signature> OperatorOf(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

struct RoiAlign : torch::autograd::Function<RoiAlign> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& boxes, double scale,
                            const c10::SymInt& height, const c10::SymInt& width, int64_t samples, bool aligned) {
    context->save_for_backward({boxes});
    auto& saved = context->saved_data;
    saved["scale"] = scale;
    saved["height"] = height;
    saved["width"] = width;
    saved["samples"] = samples;
    saved["aligned"] = aligned;
    saved["shape"] = input.sym_sizes();
    const at::AutoDispatchBelowADInplaceOrView below;
    return OperatorOf<RoiAlignForward>("torchvision::roi_align")
        .call(input, boxes, scale, height, width, samples, aligned);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    auto& saved = context->saved_data;
    const auto shape = saved["shape"].toSymIntVector();
    const at::Tensor gradient = OperatorOf<RoiAlignBackward>("torchvision::_roi_align_backward")
                                    .call(gradients[0], context->get_saved_variables()[0], saved["scale"].toDouble(),
                                          saved["height"].toSymInt(), saved["width"].toSymInt(), shape[0], shape[1],
                                          shape[2], shape[3], saved["samples"].toInt(), saved["aligned"].toBool());
    return {gradient, {}, {}, {}, {}, {}, {}};
  }
};

at::Tensor RoiAlignWithGradient(const at::Tensor& input, const at::Tensor& boxes, double scale, c10::SymInt height,
                                c10::SymInt width, int64_t samples, bool aligned) {
  return RoiAlign::apply(input, boxes, scale, height, width, samples, aligned);
}

}  // namespace

void RegisterTorchvisionGradients() {
  static const torch::Library library = [] {
    torch::Library made(torch::Library::IMPL, "torchvision", c10::DispatchKey::Autograd, __FILE__, __LINE__);
    made.impl("roi_align", TORCH_FN(RoiAlignWithGradient));
    return made;
  }();
}

}  // namespace slackline::worker
