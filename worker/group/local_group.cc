#include "worker/group/local_group.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/group/stage_group.h"
#include "worker/group/thread_group.h"

namespace slackline::worker {
namespace {

absl::StatusOr<std::unique_ptr<LocalGroup>> CreateStages(const ModelSpec& spec, uint64_t seed, size_t devices,
                                                         const GroupOptions& options) {
  if (devices != options.stages) {
    return absl::InvalidArgumentError(absl::StrCat("worker.stages is ", options.stages, ", worker.devices names ",
                                                   devices, "; a stage is one device"));
  }
  absl::StatusOr<std::unique_ptr<StagedModel>> model = StagedModel::Create(spec, seed, std::vector<Device>(devices));
  if (!model.ok()) return model.status();
  return std::make_unique<StageGroup>(*std::move(model), options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> LocalGroup::Create(const ModelSpec& spec, uint64_t seed,
                                                               const std::vector<std::string>& devices,
                                                               const GroupOptions& options) {
  for (const std::string& device : devices) {
    if (device != "cpu") {
      return absl::InvalidArgumentError(absl::StrCat("worker.devices names \"", device, "\" in [",
                                                     absl::StrJoin(devices, ", "), "]; only cpu is known"));
    }
  }
  if (options.stages > 1) return CreateStages(spec, seed, devices.size(), options);
  std::vector<std::unique_ptr<Model>> models;
  do {
    absl::StatusOr<std::unique_ptr<Model>> model = Model::Create(spec, seed);
    if (!model.ok()) return model.status();
    models.push_back(*std::move(model));
  } while (models.size() < devices.size());
  return std::make_unique<ThreadGroup>(std::move(models), options);
}

}  // namespace slackline::worker
