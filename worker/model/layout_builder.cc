#include "worker/model/layout_builder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::worker {

void LayoutBuilder::Convolution(const std::string& name, const ConvolutionShape& shape) {
  Add(absl::StrCat(name, ".weight"), {shape.channels.outputs, shape.channels.inputs, shape.window, shape.window}, true);
  if (shape.bias) Add(absl::StrCat(name, ".bias"), {shape.channels.outputs}, true);
}

void LayoutBuilder::Linear(const std::string& name, const LayerShape& shape) {
  Add(absl::StrCat(name, ".weight"), {shape.outputs, shape.inputs}, true);
  Add(absl::StrCat(name, ".bias"), {shape.outputs}, true);
}

void LayoutBuilder::BatchNorm(const std::string& name, uint64_t channels) {
  Add(absl::StrCat(name, ".weight"), {channels}, true);
  Add(absl::StrCat(name, ".bias"), {channels}, true);
  Add(absl::StrCat(name, ".running_mean"), {channels}, false);
  Add(absl::StrCat(name, ".running_var"), {channels}, false);
}

void LayoutBuilder::LayerNorm(const std::string& name, uint64_t width) {
  Add(absl::StrCat(name, ".weight"), {width}, true);
  Add(absl::StrCat(name, ".bias"), {width}, true);
}

void LayoutBuilder::Parameter(const std::string& name, std::vector<uint64_t> shape) {
  Add(name, std::move(shape), true);
}

void LayoutBuilder::Buffer(const std::string& name, std::vector<uint64_t> shape) { Add(name, std::move(shape), false); }

absl::Status LayoutBuilder::TakeFrozen(const std::vector<ParameterGroupRule>& groups, std::vector<TensorInfo>& frozen) {
  std::vector<bool> used(groups.size());
  std::vector<std::string> names;
  std::vector<TensorInfo> trained;
  for (TensorInfo& tensor : trained_) {
    names.push_back(tensor.name);
    const std::optional<size_t> group = GroupOf(groups, tensor.name);
    if (group) used[*group] = true;
    tensor.frozen = group && groups[*group].frozen;
    tensor.trained = !tensor.frozen;
    (tensor.frozen ? frozen : trained).push_back(std::move(tensor));
  }
  trained_ = std::move(trained);
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end()) {
    const auto i = static_cast<size_t>(unused - used.begin());
    return absl::InvalidArgumentError(WhyUnused(groups, i, names));
  }
  if (trained_.empty() && !frozen.empty()) {
    return absl::InvalidArgumentError("optimizer.groups: all parameters are frozen; at least one must be trained");
  }
  return absl::OkStatus();
}

// Refuses before a product or the sum can overflow.
void LayoutBuilder::Add(std::string name, std::vector<uint64_t> shape, bool trained) {
  uint64_t elements = 1;
  for (uint64_t side : shape) SLACKLINE_CHECK(side > 0);
  for (uint64_t side : shape) elements = side > kElementsMax / elements ? kElementsMax + 1 : elements * side;
  too_large_ = too_large_ || elements > kElementsMax - elements_;
  if (too_large_) return;
  elements_ += elements;
  (trained ? trained_ : buffers_).push_back({.name = std::move(name), .shape = std::move(shape), .trained = trained});
}

absl::StatusOr<Layout> LayoutBuilder::Finish(const std::vector<ParameterGroupRule>& groups) && {
  if (too_large_) {
    return absl::InvalidArgumentError(absl::StrCat("the model has more than ", kElementsMax, " elements"));
  }
  std::vector<TensorInfo> frozen;
  if (absl::Status took = TakeFrozen(groups, frozen); !took.ok()) return took;
  Layout layout;
  for (std::vector<TensorInfo>* part : {&trained_, &buffers_, &frozen}) {
    for (TensorInfo& tensor : *part) {
      tensor.offset = layout.elements;
      layout.elements += tensor.elements();
      if (tensor.trained) layout.trained_elements += tensor.elements();
      layout.tensors.push_back(std::move(tensor));
    }
  }
  return layout;
}

}  // namespace slackline::worker
