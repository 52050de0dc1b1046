#include "worker/model/head_layout.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/model/efficientnet_layout.h"
#include "worker/model/resnet_layout.h"
#include "worker/model/vit_layout.h"

namespace slackline::worker {
namespace {

void AddPerceptron(const std::string& name, const LayerShape& shape, uint64_t hidden, LayoutBuilder& builder) {
  builder.Linear(name + ".0", {.inputs = shape.inputs, .outputs = hidden});
  builder.BatchNorm(name + ".1", hidden);
  builder.Linear(name + ".3", {.inputs = hidden, .outputs = shape.outputs});
}

}  // namespace

uint64_t FeatureWidth(const ModelSpec& spec) {
  switch (spec.kind) {
    case ModelKind::kMlp:
    case ModelKind::kCnn:
    case ModelKind::kTextureCnn2:
      return spec.hidden.back();
    case ModelKind::kResnet18:
    case ModelKind::kResnet34:
    case ModelKind::kResnet50:
      return ResnetBlocks(spec.kind).back().channels.outputs;
    case ModelKind::kEfficientnetB0:
      return kEfficientnetHeadChannels;
    case ModelKind::kVitTiny:
    case ModelKind::kVitSmall:
    case ModelKind::kVitBase:
      return ShapeOfVit(spec).width;
    case ModelKind::kTorchScript:
      break;
  }
  SLACKLINE_CHECK(false);
  return 0;
}

void AddHead(const ModelSpec& spec, LayoutBuilder& builder) {
  const SelfSupervised& head = spec.self_supervised;
  AddPerceptron(kProjection, {.inputs = FeatureWidth(spec), .outputs = head.outputs}, head.hidden, builder);
  if (!head.has_teacher()) return;
  AddPerceptron(kPrediction, {.inputs = head.outputs, .outputs = head.outputs}, head.hidden, builder);
}

bool IsOfHead(const std::string& name) {
  return absl::StartsWith(name, absl::StrCat(kProjection, ".")) ||
         absl::StartsWith(name, absl::StrCat(kPrediction, "."));
}

}  // namespace slackline::worker
