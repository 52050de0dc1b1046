// Implements StagedModel on LibTorch, on the devices of its streams. Uses LibTorch.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/model/staged_model.h"
#include "worker/model/torch/stage_streams.h"

namespace slackline::worker {

// Creates a model as StagedModel::Create() does, on the given streams.
absl::StatusOr<std::unique_ptr<StagedModel>> MakeStagedNetwork(const ModelSpec& spec, uint64_t seed,
                                                               std::unique_ptr<StageStreams> streams,
                                                               const StagedModel::Pin& pin = {});

}  // namespace slackline::worker
