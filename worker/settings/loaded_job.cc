#include "worker/settings/loaded_job.h"

#include <utility>

namespace slackline::worker {

absl::StatusOr<LoadedJob> LoadJob(const WorkerConfig& config, images::ImagePeers* peers) {
  absl::StatusOr<images::JobData> data = images::OpenJobData(config.data, peers);
  if (!data.ok()) return data.status();
  absl::StatusOr<ModelSpec> spec = FitModel(config, data->train);
  if (!spec.ok()) return spec.status();
  return LoadedJob{*std::move(data), *std::move(spec)};
}

}  // namespace slackline::worker
