#include "worker/model/flat_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"

namespace slackline::worker {
namespace {

at::Tensor View(const at::Tensor& flat, const TensorInfo& tensor) {
  const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
  return at::from_blob(flat.data_ptr<float>() + tensor.offset, shape, at::kFloat);
}

}  // namespace

FlatTensors::FlatTensors(const Layout& layout)
    : trained_elements_(layout.trained_elements),
      parameters_(at::zeros(static_cast<int64_t>(layout.elements))),
      push_(at::zeros(static_cast<int64_t>(layout.elements))) {
  for (const TensorInfo& info : layout.tensors) {
    at::Tensor tensor = View(parameters_, info);
    if (info.trained) {
      trained_[info.name] = {.info = info, .tensor = tensor.set_requires_grad(true)};
    } else {
      averaged_[info.name] = {.info = info, .tensor = {.agreed = tensor, .pushed = {}}};
    }
  }
  PointIntoPush();
}

void FlatTensors::PointIntoPush() {
  for (auto& [name, placed] : trained_) placed.tensor.mutable_grad() = View(push_, placed.info);
  for (auto& [name, placed] : averaged_) placed.tensor.pushed = View(push_, placed.info);
}

void FlatTensors::UsePush(absl::Span<float> memory) {
  SLACKLINE_CHECK(memory.size() == push().size());
  if (memory.data() == push().data()) return;
  push_ = at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())}, at::kFloat);
  PointIntoPush();
}

// The tensors stay what they are to autograd and to whoever holds them: only their data moves.
void FlatTensors::UseParameters(absl::Span<float> memory) {
  SLACKLINE_CHECK(memory.size() == parameters().size());
  if (memory.data() == parameters().data()) return;
  parameters_ = at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())}, at::kFloat);
  for (auto& [name, placed] : trained_) placed.tensor.set_data(View(parameters_, placed.info));
  for (auto& [name, placed] : averaged_) placed.tensor.agreed.set_data(View(parameters_, placed.info));
}

void FlatTensors::ResetPush() {
  const auto buffers = static_cast<std::ptrdiff_t>(trained_elements_);
  std::fill(push().begin(), push().begin() + buffers, 0.0f);
  std::copy(parameters().begin() + buffers, parameters().end(), push().begin() + buffers);
}

}  // namespace slackline::worker
