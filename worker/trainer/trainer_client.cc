// The trainer's client of a life: how its pushes and pulls travel, and what of them the group's device encodes.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/logging.h"
#include "worker/trainer/trainer.h"

namespace slackline::worker {
absl::StatusOr<std::unique_ptr<Client>> Trainer::MakeClient(bool reader) {
  ClientOptions options = life_.MakeClientOptions(reader);
  options.averaged = reader && options_.averaged;
  options.chunk_bytes = options_.chunk_bytes;
  options.window = options_.window;
  options.first_layers_first = overlap_pulls_;
  options.background = options_.window > 1 || life_.map().elements >= kBackgroundElementsMin;
  options.same_host = options_.same_host;
  options.protection = options_.protection;
  options.cores = options_.exchange_cores;
  if (!reader) {
    options.push_runs = options_.push_runs;
    options.pull_encoding = options_.pull_encoding;
    options.push_segment = parts_.push_segment;
    options.on_device = PlanOnDevice(options);
  }
  options.trace = exchange_trace_;
  return parts_.connect(options, life_.map());
}

DevicePlan Trainer::PlanOnDevice(const ClientOptions& options) {
  ChunkEncoder* const encoder = parts_.group.encoder();
  // What is more than one batch's gradient, or may be skipped, is made of floats.
  if (encoder == nullptr || options_.accumulate > 1 || options_.local.on() || scaler_.on()) return {};
  std::vector<PlannedChunk> chunks = PlanChunks(options, life_.map());
  const absl::Status planned = encoder->Plan(chunks);
  if (!planned.ok()) {
    log::Warning("gradients are encoded on the host: ", std::string(planned.message()));
    return {};
  }
  if (chunks.empty()) return {};
  return {.encoder = encoder, .chunks = std::move(chunks)};
}

}  // namespace slackline::worker
