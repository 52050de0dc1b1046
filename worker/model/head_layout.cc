#include "worker/model/head_layout.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/model/family.h"

namespace slackline::worker {
namespace {

void AddPerceptron(const std::string& name, const LayerShape& shape, uint64_t hidden, LayoutBuilder& builder) {
  builder.Linear(name + ".0", {.inputs = shape.inputs, .outputs = hidden});
  builder.BatchNorm(name + ".1", hidden);
  builder.Linear(name + ".3", {.inputs = hidden, .outputs = shape.outputs});
}

}  // namespace

void AddHead(const ModelSpec& spec, LayoutBuilder& builder) {
  const SelfSupervised& head = spec.self_supervised;
  AddPerceptron(kProjection, {.inputs = FamilyOf(spec.kind).feature_width(spec), .outputs = head.outputs}, head.hidden,
                builder);
  if (!head.has_teacher()) return;
  AddPerceptron(kPrediction, {.inputs = head.outputs, .outputs = head.outputs}, head.hidden, builder);
}

bool IsOfHead(const std::string& name) {
  return absl::StartsWith(name, absl::StrCat(kProjection, ".")) ||
         absl::StartsWith(name, absl::StrCat(kPrediction, "."));
}

}  // namespace slackline::worker
