#include "worker/model/torch/backward_watch.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>

namespace slackline::worker {

class BackwardWatch::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(BackwardWatch& watch, size_t tensor) : watch_(watch), tensor_(tensor) {}
  void operator()(const at::Tensor&) override { watch_.Accumulated(tensor_); }

 private:
  BackwardWatch& watch_;
  const size_t tensor_;
};

BackwardWatch::BackwardWatch(const Layout& layout, FlatTensors& tensors)
    : layout_(layout),
      tensors_(tensors),
      trained_(static_cast<size_t>(std::count_if(layout.tensors.begin(), layout.tensors.end(),
                                                 [](const TensorInfo& tensor) { return tensor.trained; }))),
      complete_(trained_) {
  for (size_t i = 0; i < trained_; ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(tensors.Trained(layout.tensors[i].name),
                                                   std::make_unique<Hook>(*this, i));
  }
}

void BackwardWatch::Begin(const Model::Ready& ready) {
  complete_.assign(trained_, false);
  first_complete_ = trained_;
  ready_ = &ready;
  ready(layout_.trained_elements);
}

void BackwardWatch::Accumulated(size_t tensor) {
  if (ready_ == nullptr || complete_[tensor]) return;
  complete_[tensor] = true;
  tensors_.MoveGradient(layout_.tensors[tensor].name);
  const size_t before = first_complete_;
  while (first_complete_ > 0 && complete_[first_complete_ - 1]) --first_complete_;
  if (first_complete_ < before) (*ready_)(layout_.tensors[first_complete_].offset);
}

void BackwardWatch::End() {
  for (size_t i = trained_; i-- > 0;) Accumulated(i);
  ready_ = nullptr;
}

}  // namespace slackline::worker
