#include "simulator/loaded_job.h"

#include <utility>

namespace slackline::simulator {

absl::StatusOr<LoadedJob> LoadJob(const worker::WorkerConfig& config) {
  absl::StatusOr<images::JobData> data = images::OpenJobData(config.data);
  if (!data.ok()) return data.status();
  absl::StatusOr<worker::ModelSpec> spec = worker::FitModel(config, data->train);
  if (!spec.ok()) return spec.status();
  return LoadedJob{*std::move(data), *std::move(spec)};
}

}  // namespace slackline::simulator
