#include "worker/model/networks/flat_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/base/check.h"

namespace slackline::worker {
namespace {

at::Tensor View(const at::Tensor& flat, const TensorInfo& tensor) {
  const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
  return at::from_blob(flat.data_ptr<float>() + tensor.offset, shape, flat.options());
}

}  // namespace

FlatTensors::FlatTensors(const Layout& layout, at::Device device)
    : trained_elements_(layout.trained_elements),
      parameters_(at::zeros(static_cast<int64_t>(layout.elements), device)),
      push_(at::zeros(static_cast<int64_t>(layout.elements), device)) {
  for (const TensorInfo& info : layout.tensors) {
    const at::Tensor agreed = View(parameters_, info);
    const bool averaged = !info.trained && !info.frozen;
    (averaged ? averaged_ : trained_)[info.name] = {.info = info, .tensor = {.agreed = agreed, .pushed = {}}};
    if (info.trained) agreed.set_requires_grad(true);
    if (averaged) averaged_elements_ += info.elements();
  }
  PointIntoPush();
}

void FlatTensors::PointIntoPush() {
  for (std::map<std::string, Placed>* tensors : {&trained_, &averaged_}) {
    for (auto& [name, placed] : *tensors) placed.tensor.pushed = View(push_, placed.info);
  }
}

at::Tensor FlatTensors::Lent(absl::Span<float> memory) const {
  return at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())}, push_.options());
}

void FlatTensors::CopyParameters(const FlatTensors& from) { parameters_.copy_(from.parameters_); }

void FlatTensors::WriteParameters(absl::Span<const float> from) {
  SLACKLINE_CHECK(from.size() == parameters().size());
  parameters_.copy_(at::from_blob(const_cast<float*>(from.data()), {static_cast<int64_t>(from.size())}, at::kFloat),
                    /*non_blocking=*/true);
}

void FlatTensors::ReadPush(absl::Span<float> to) const {
  SLACKLINE_CHECK(to.size() == push().size());
  at::from_blob(to.data(), {static_cast<int64_t>(to.size())}, at::kFloat).copy_(push_, /*non_blocking=*/true);
}

void FlatTensors::MoveTowards(const FlatTensors& to, double share) { parameters_.lerp_(to.parameters_, share); }

void FlatTensors::UsePush(absl::Span<float> memory) {
  SLACKLINE_CHECK(memory.size() == push().size());
  if (memory.data() == push().data()) return;
  push_ = Lent(memory);
  PointIntoPush();
}

// The tensors stay what they are to autograd and to whoever holds them: only their data moves.
void FlatTensors::UseParameters(absl::Span<float> memory) {
  SLACKLINE_CHECK(memory.size() == parameters().size());
  if (memory.data() == parameters().data()) return;
  parameters_ = Lent(memory);
  for (std::map<std::string, Placed>* tensors : {&trained_, &averaged_}) {
    for (auto& [name, placed] : *tensors) placed.tensor.agreed.set_data(View(parameters_, placed.info));
  }
}

uint64_t FlatTensors::EndOf(const std::string& name) const {
  const TensorInfo& info = trained_.at(name).info;
  return info.offset + info.elements();
}

FlatTensors::Arriving::Arriving(FlatTensors& tensors, Arrival* arrival) : tensors_(tensors) {
  SLACKLINE_CHECK(arrival == nullptr || tensors.averaged_.empty());
  tensors_.arrival_ = arrival;
}

void FlatTensors::Begin(float loss_scale) {
  loss_scale_ = loss_scale;
  for (auto& [name, placed] : trained_) placed.tensor.agreed.mutable_grad().reset();
  const auto trained = static_cast<int64_t>(trained_elements_), buffers = static_cast<int64_t>(averaged_elements_);
  if (buffers > 0) push_.narrow(0, trained, buffers).copy_(parameters_.narrow(0, trained, buffers));
}

void FlatTensors::MoveGradient(const std::string& name) {
  const at::NoGradGuard no_grad;
  const AgreedTensor& tensor = trained_.at(name).tensor;
  at::Tensor& made = tensor.agreed.mutable_grad();
  if (made.defined()) {
    tensor.pushed.copy_(made);
    if (loss_scale_ != 1) tensor.pushed.div_(loss_scale_);
    made.reset();
  } else {
    tensor.pushed.zero_();
  }
}

void FlatTensors::AccumulateInPush() {
  const at::NoGradGuard no_grad;
  push_.narrow(0, 0, static_cast<int64_t>(trained_elements_)).zero_();
  for (auto& [name, placed] : trained_) {
    if (placed.info.trained) placed.tensor.agreed.mutable_grad() = placed.tensor.pushed;
  }
}

void FlatTensors::DivideAccumulated(float loss_scale) {
  const at::NoGradGuard no_grad;
  push_.narrow(0, 0, static_cast<int64_t>(trained_elements_)).div_(loss_scale);
}

Gate::Gate(const FlatTensors& tensors, const std::vector<std::string>& names) : tensors_(&tensors) {
  for (const std::string& name : names) end_ = std::max(end_, tensors.EndOf(name));
}

}  // namespace slackline::worker
