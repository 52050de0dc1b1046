#include "worker/model/layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_layout.h"
#include "worker/model/layout_builder.h"
#include "worker/model/resnet_layout.h"

namespace slackline::worker {
namespace {

// Each family of networks checks what it needs and adds its layers.
absl::Status AddNetwork(const ModelSpec& spec, LayoutBuilder& builder) {
  switch (spec.kind) {
    case ModelKind::kMlp:
    case ModelKind::kCnn:
      return AddChain(spec, builder);
    case ModelKind::kResnet18:
      return AddResnet(spec, builder);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no model of kind ", static_cast<int>(spec.kind)));
}

}  // namespace

uint64_t TensorInfo::elements() const {
  uint64_t elements = 1;
  for (uint64_t side : shape) elements *= side;
  return elements;
}

absl::StatusOr<Layout> MakeLayout(const ModelSpec& spec) {
  if (spec.classes < 2) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", spec.classes, " classes; at least 2 are needed"));
  }
  LayoutBuilder builder;
  if (absl::Status status = AddNetwork(spec, builder); !status.ok()) return status;
  return std::move(builder).Finish();
}

}  // namespace slackline::worker
