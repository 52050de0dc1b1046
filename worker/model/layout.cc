#include "worker/model/layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/family.h"
#include "worker/model/head_layout.h"
#include "worker/model/layout_builder.h"

namespace slackline::worker {

uint64_t TensorInfo::elements() const {
  uint64_t elements = 1;
  for (uint64_t side : shape) elements *= side;
  return elements;
}

absl::StatusOr<std::vector<images::DetectedObjects>> Model::Detect(absl::Span<const images::Scene> /*scenes*/) {
  return absl::UnimplementedError("this model classifies images, and finds no objects on them");
}

uint64_t Model::pushed_elements() const {
  uint64_t pushed = elements();
  for (const TensorInfo& tensor : tensors()) pushed -= tensor.frozen ? tensor.elements() : 0;
  return pushed;
}

absl::Status Model::RecordSteps(std::unique_ptr<StepRecorder> /*recorder*/) {
  return absl::UnimplementedError("this model's steps cannot be recorded");
}

absl::Status CheckRecordable(const ModelSpec& spec) {
  const auto refuse = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("worker.cuda_graphs: found true with ", what, "; allowed is false"));
  };
  if (!FactsOf(spec.kind).built_in()) return refuse("a module of the user's, which may do anything in a step");
  if (spec.self_supervised.on()) return refuse("training without labels");
  if (spec.checkpointing) return refuse("model.checkpointing");
  if (spec.dropout > 0 || spec.stochastic_depth > 0) {
    return refuse("dropout or stochastic depth, whose draws come from the host in each step");
  }
  return absl::OkStatus();
}

absl::Status Model::Remember(const BatchView& /*batch*/) {
  return absl::UnimplementedError("this model remembers no images");
}

absl::StatusOr<Layout> MakeLayout(const ModelSpec& spec) {
  if (spec.classes < 2) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", spec.classes, " classes; at least 2 are needed"));
  }
  if (!spec.class_weights.empty() && spec.class_weights.size() != spec.classes) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", spec.class_weights.size(), " class weights for ",
                                                   spec.classes, " classes; one of each is needed"));
  }
  if (!FactsOf(spec.kind).built_in()) {
    return absl::InvalidArgumentError(
        absl::StrCat("what a ", KindName(spec.kind), " module is made of is known by LibTorch alone"));
  }
  LayoutBuilder builder;
  if (absl::Status status = FamilyOf(spec.kind).add(spec, builder); !status.ok()) return status;
  if (spec.self_supervised.on()) AddHead(spec, builder);
  return std::move(builder).Finish(spec.groups);
}

}  // namespace slackline::worker
