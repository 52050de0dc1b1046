#include "worker/job_model.h"

#include <algorithm>

#include "worker/job_config.h"
#include "worker/model/layout.h"
#include "worker/push_codecs.h"

namespace slackline::worker {
namespace {

// An image that every model takes. What tensors are called does not depend on its size.
ModelSpec WithSmallImages(ModelSpec spec) {
  constexpr uint32_t kSide = 16;
  const bool patches =
      spec.kind == ModelKind::kVitTiny || spec.kind == ModelKind::kVitSmall || spec.kind == ModelKind::kVitBase;
  spec.channels = 1;
  spec.height = spec.width = patches ? std::max(1u, spec.patch_size) : kSide;
  return spec;
}

}  // namespace

absl::Status CheckModel(const job::Job& job) {
  if (job.model().kind() == job::Model::EXTERNAL || job.model().kind() == job::Model::TORCHSCRIPT) {
    return absl::OkStatus();
  }
  const WorkerConfig config = MakeWorkerConfig(job, {.name = "worker-1"}, /*cores=*/1);
  const absl::StatusOr<Layout> layout = MakeLayout(WithSmallImages(config.model));
  if (!layout.ok()) return layout.status();
  return MakeCodecRuns(config.push_codecs, layout->tensors).status();
}

}  // namespace slackline::worker
