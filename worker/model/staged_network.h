// StagedModel on LibTorch, on whatever devices its streams are of. LibTorch inside.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/model/stage_streams.h"
#include "worker/model/staged_model.h"

namespace slackline::worker {

// As StagedModel::Create() has it.
absl::StatusOr<std::unique_ptr<StagedModel>> MakeStagedNetwork(const ModelSpec& spec, uint64_t seed,
                                                               std::unique_ptr<StageStreams> streams,
                                                               const StagedModel::Pin& pin = {});

}  // namespace slackline::worker
