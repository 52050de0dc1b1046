#include "worker/settings/job_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"
#include "images/formats/data_requests.h"
#include "images/pictures/form.h"
#include "worker/model/layout.h"
#include "worker/model/stage_plan.h"
#include "worker/settings/push_codecs.h"

namespace slackline::worker {
namespace {

// Images as the job says them; else of a size that every model takes. What tensors are called does not depend on it.
absl::StatusOr<ModelSpec> WithImages(const WorkerConfig& config) {
  ModelSpec spec = config.model;
  const images::pictures::FormWish wish = images::FormWishOf(config.data.settings.decode());
  if (!wish.size.empty()) {
    const absl::StatusOr<images::pictures::Size> size = images::pictures::SizeOf(wish);
    if (!size.ok()) return size.status();
    spec.channels = wish.grey ? 1 : 3;
    spec.width = size->width;
    spec.height = size->height;
    return spec;
  }
  constexpr uint32_t kSide = 16;
  spec.channels = 1;
  spec.height = spec.width = FactsOf(spec.kind).has_patches() ? std::max(1u, spec.patch_size) : kSide;
  return spec;
}

}  // namespace

absl::Status CheckJob(const job::Job& given) {
  const job::Job job = Resolve(given);
  if (RunsScripts(job)) return absl::OkStatus();
  const WorkerConfig config = MakeWorkerConfig(job, {.name = "worker-1"}, /*cores=*/1);
  const absl::StatusOr<ModelSpec> spec = WithImages(config);
  if (!spec.ok()) return spec.status();
  if (!FactsOf(spec->kind).built_in()) return absl::OkStatus();
  const absl::StatusOr<Layout> layout = MakeLayout(*spec);
  if (!layout.ok()) return layout.status();
  if (config.stages > 1) {
    if (const absl::Status cut = CutModel(*spec, config.stages).status(); !cut.ok()) return cut;
  }
  return MakeCodecRuns(config.push_codecs, layout->tensors).status();
}

absl::Status CheckParts(const WorkerConfig& config, size_t devices) {
  const bool compares = config.model.self_supervised.method == SelfSupervised::Method::kContrastive;
  if (!compares || config.trainer.batch_size >= 2 * devices) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("training.batch_size: found ", config.trainer.batch_size,
                                                 " with training.self_supervised.method: contrastive and ", devices,
                                                 " devices; allowed is at least ", 2 * devices,
                                                 ", or fewer devices: each compares its part of a batch"));
}

}  // namespace slackline::worker
