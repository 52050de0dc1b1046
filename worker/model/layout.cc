#include "worker/model/layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_layout.h"
#include "worker/model/efficientnet_layout.h"
#include "worker/model/head_layout.h"
#include "worker/model/layout_builder.h"
#include "worker/model/resnet_layout.h"
#include "worker/model/texture_layout.h"
#include "worker/model/vit_layout.h"

namespace slackline::worker {
namespace {

// Each family of networks checks what it needs and adds its layers.
absl::Status AddNetwork(const ModelSpec& spec, LayoutBuilder& builder) {
  switch (spec.kind) {
    case ModelKind::kMlp:
    case ModelKind::kCnn:
      return AddChain(spec, builder);
    case ModelKind::kResnet18:
    case ModelKind::kResnet34:
    case ModelKind::kResnet50:
      return AddResnet(spec, builder);
    case ModelKind::kEfficientnetB0:
      return AddEfficientnet(spec, builder);
    case ModelKind::kVitTiny:
    case ModelKind::kVitSmall:
    case ModelKind::kVitBase:
      return AddVit(spec, builder);
    case ModelKind::kTextureCnn2:
      return AddTexture(spec, builder);
    case ModelKind::kTorchScript:
      return absl::InvalidArgumentError("what a torchscript module is made of is known by LibTorch alone");
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no model of kind ", static_cast<int>(spec.kind)));
}

}  // namespace

std::string KindName(ModelKind kind) {
  switch (kind) {
    case ModelKind::kMlp:
      return "mlp";
    case ModelKind::kCnn:
      return "cnn";
    case ModelKind::kResnet18:
      return "resnet18";
    case ModelKind::kResnet34:
      return "resnet34";
    case ModelKind::kResnet50:
      return "resnet50";
    case ModelKind::kEfficientnetB0:
      return "efficientnet_b0";
    case ModelKind::kVitTiny:
      return "vit_tiny";
    case ModelKind::kVitSmall:
      return "vit_small";
    case ModelKind::kVitBase:
      return "vit_base";
    case ModelKind::kTextureCnn2:
      return "texture_cnn_2";
    case ModelKind::kTorchScript:
      return "torchscript";
  }
  return absl::StrCat("model ", static_cast<int>(kind));
}

uint64_t TensorInfo::elements() const {
  uint64_t elements = 1;
  for (uint64_t side : shape) elements *= side;
  return elements;
}

absl::StatusOr<std::vector<images::Found>> Model::Detect(absl::Span<const images::Scene> /*scenes*/) {
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
  if (spec.kind == ModelKind::kTorchScript) return refuse("a module of the user's, which may do anything in a step");
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
  LayoutBuilder builder;
  if (absl::Status status = AddNetwork(spec, builder); !status.ok()) return status;
  if (spec.self_supervised.on()) AddHead(spec, builder);
  return std::move(builder).Finish(spec.groups);
}

}  // namespace slackline::worker
