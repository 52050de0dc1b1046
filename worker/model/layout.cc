#include "worker/model/layout.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::worker {
namespace {

absl::Status CheckImage(const ModelSpec& spec) {
  const uint64_t least = spec.kind == ModelKind::kCnn ? kPooling * kPooling : 1;
  if (spec.channels > 0 && spec.height >= least && spec.width >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("images of ", spec.channels, " x ", spec.height, " x ", spec.width,
                                                 " are too small: at least 1 x ", least, " x ", least,
                                                 " is needed for this model"));
}

absl::Status CheckSpec(const ModelSpec& spec) {
  if (absl::Status status = CheckImage(spec); !status.ok()) return status;
  if (spec.hidden.empty()) return absl::InvalidArgumentError("the model has no hidden layer; at least 1 is needed");
  if (spec.classes < 2) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", spec.classes, " classes; at least 2 are needed"));
  }
  if (spec.kind == ModelKind::kCnn && spec.filters.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("cnn was given ", spec.filters.size(), " numbers of filters; exactly 2 are needed"));
  }
  for (const auto& widths : {spec.hidden, spec.filters}) {
    for (uint32_t width : widths) {
      if (width == 0) return absl::InvalidArgumentError("a layer of the model has 0 units; at least 1 is needed");
    }
  }
  return absl::OkStatus();
}

// Adds tensors one by one and keeps the offset. Refuses before a product can overflow.
class Builder {
 public:
  explicit Builder(Layout& layout) : layout_(layout) {}

  void Add(std::string name, std::vector<uint64_t> shape, bool trained) {
    uint64_t elements = 1;
    for (uint64_t side : shape) elements = side > kElementsMax / elements ? kElementsMax + 1 : elements * side;
    too_large_ = too_large_ || elements > kElementsMax - layout_.elements;
    if (too_large_) return;
    layout_.tensors.push_back(
        {.name = std::move(name), .shape = std::move(shape), .trained = trained, .offset = layout_.elements});
    layout_.elements += elements;
    if (trained) layout_.trained_elements += elements;
  }
  bool too_large() const { return too_large_; }

 private:
  Layout& layout_;
  bool too_large_ = false;
};

// The chain of widths as layers: inputs -> first -> second -> ...
std::vector<LayerShape> Chain(uint64_t inputs, const std::vector<uint32_t>& widths) {
  std::vector<LayerShape> layers;
  for (uint32_t width : widths) {
    layers.push_back({.inputs = inputs, .outputs = width});
    inputs = width;
  }
  return layers;
}

uint64_t FlatInputs(const ModelSpec& spec) {
  uint64_t height = spec.height;
  uint64_t width = spec.width;
  if (spec.kind == ModelKind::kMlp) return spec.channels * height * width;
  for (size_t i = 0; i < spec.filters.size(); ++i) {
    height /= kPooling;
    width /= kPooling;
  }
  return spec.filters.back() * height * width;
}

void AddTrained(const ModelSpec& spec, Layout& layout, Builder& builder) {
  for (size_t i = 0; i < layout.convolutions.size(); ++i) {
    const auto [inputs, outputs] = layout.convolutions[i];
    builder.Add(absl::StrCat("conv", i + 1, ".weight"), {outputs, inputs, kWindow, kWindow}, true);
    builder.Add(absl::StrCat("conv", i + 1, ".bias"), {outputs}, true);
    if (!spec.batch_norm) continue;
    builder.Add(absl::StrCat("bn", i + 1, ".weight"), {outputs}, true);
    builder.Add(absl::StrCat("bn", i + 1, ".bias"), {outputs}, true);
  }
  for (size_t i = 0; i < layout.linears.size(); ++i) {
    const auto [inputs, outputs] = layout.linears[i];
    builder.Add(absl::StrCat("fc", i + 1, ".weight"), {outputs, inputs}, true);
    builder.Add(absl::StrCat("fc", i + 1, ".bias"), {outputs}, true);
  }
}

void AddBuffers(const ModelSpec& spec, Layout& layout, Builder& builder) {
  if (!spec.batch_norm) return;
  for (size_t i = 0; i < layout.convolutions.size(); ++i) {
    builder.Add(absl::StrCat("bn", i + 1, ".running_mean"), {layout.convolutions[i].outputs}, false);
    builder.Add(absl::StrCat("bn", i + 1, ".running_var"), {layout.convolutions[i].outputs}, false);
  }
}

}  // namespace

uint64_t TensorInfo::elements() const {
  uint64_t elements = 1;
  for (uint64_t side : shape) elements *= side;
  return elements;
}

absl::StatusOr<Layout> MakeLayout(const ModelSpec& spec) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  Layout layout;
  if (spec.kind == ModelKind::kCnn) layout.convolutions = Chain(spec.channels, spec.filters);
  std::vector<uint32_t> widths = spec.hidden;
  widths.push_back(spec.classes);
  layout.linears = Chain(FlatInputs(spec), widths);

  Builder builder(layout);
  AddTrained(spec, layout, builder);
  AddBuffers(spec, layout, builder);
  if (builder.too_large()) {
    return absl::InvalidArgumentError(absl::StrCat("the model has more than ", kElementsMax, " elements"));
  }
  return layout;
}

}  // namespace slackline::worker
