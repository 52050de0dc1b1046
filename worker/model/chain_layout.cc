#include "worker/model/chain_layout.h"

#include "absl/strings/str_cat.h"

namespace slackline::worker {
namespace {

bool Convolves(const ModelSpec& spec) { return FactsOf(spec.kind).has_filters(); }

absl::Status CheckImage(const ModelSpec& spec) {
  const uint64_t least = Convolves(spec) ? kChainPooling * kChainPooling : 1;
  if (spec.channels > 0 && spec.height >= least && spec.width >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("images of ", spec.channels, " x ", spec.height, " x ", spec.width,
                                                 " are too small: at least 1 x ", least, " x ", least,
                                                 " is needed for this model"));
}

absl::Status CheckChain(const ModelSpec& spec) {
  if (absl::Status status = CheckImage(spec); !status.ok()) return status;
  if (spec.hidden.empty()) return absl::InvalidArgumentError("the model has no hidden layer; at least 1 is needed");
  if (Convolves(spec) && spec.filters.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(KindName(spec.kind), " was given ", spec.filters.size(),
                                                   " numbers of filters; exactly 2 are needed"));
  }
  for (const auto& widths : {spec.hidden, spec.filters}) {
    for (uint32_t width : widths) {
      if (width == 0) return absl::InvalidArgumentError("a layer of the model has 0 units; at least 1 is needed");
    }
  }
  return absl::OkStatus();
}

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
  if (!Convolves(spec)) return spec.channels * height * width;
  for (size_t i = 0; i < spec.filters.size(); ++i) {
    height /= kChainPooling;
    width /= kChainPooling;
  }
  return spec.filters.back() * height * width;
}

}  // namespace

ChainShape ShapeOfChain(const ModelSpec& spec) {
  ChainShape shape;
  if (Convolves(spec)) shape.convolutions = Chain(spec.channels, spec.filters);
  std::vector<uint32_t> widths = spec.hidden;
  if (!spec.self_supervised.on()) widths.push_back(spec.classes);
  shape.linears = Chain(FlatInputs(spec), widths);
  return shape;
}

// Weight and bias of each, and two more where there is a norm.
std::vector<LayerPlan> LayersOfChain(const ModelSpec& spec) {
  const ChainShape shape = ShapeOfChain(spec);
  std::vector<LayerPlan> layers;
  double pixels = static_cast<double>(spec.height) * spec.width;
  for (const LayerShape& layer : shape.convolutions) {
    const auto window = static_cast<double>(layer.inputs * layer.outputs * kChainWindow * kChainWindow);
    layers.push_back({.cost = window * pixels, .tensors = spec.batch_norm ? size_t{4} : size_t{2}});
    pixels /= kChainPooling * kChainPooling;
  }
  for (const LayerShape& layer : shape.linears) {
    layers.push_back({.cost = static_cast<double>(layer.inputs * layer.outputs), .tensors = 2});
  }
  return layers;
}

absl::Status AddChain(const ModelSpec& spec, LayoutBuilder& builder) {
  if (absl::Status status = CheckChain(spec); !status.ok()) return status;
  const ChainShape shape = ShapeOfChain(spec);
  for (size_t i = 0; i < shape.convolutions.size(); ++i) {
    const LayerShape& channels = shape.convolutions[i];
    builder.Convolution(absl::StrCat("conv", i + 1), {.channels = channels, .window = kChainWindow, .bias = true});
    if (spec.batch_norm) builder.BatchNorm(absl::StrCat("bn", i + 1), channels.outputs);
  }
  for (size_t i = 0; i < shape.linears.size(); ++i) builder.Linear(absl::StrCat("fc", i + 1), shape.linears[i]);
  return absl::OkStatus();
}

}  // namespace slackline::worker
