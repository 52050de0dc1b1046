#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "worker/cuda/gpu_group.h"
#include "worker/cuda/gpus.h"
#include "worker/cuda/host_memory.h"
#include "worker/group/stage_group.h"
#include "worker/model/staged_model.h"

namespace slackline::worker::gpu {
namespace {

absl::StatusOr<std::unique_ptr<LocalGroup>> MakeStages(const ModelSpec& spec, uint64_t seed,
                                                       const std::vector<Device>& devices,
                                                       const GroupOptions& options) {
  if (devices.size() != options.stages) {
    return absl::InvalidArgumentError(absl::StrCat("worker.stages is ", options.stages, ", worker.devices names ",
                                                   devices.size(), "; a stage is one device"));
  }
  // Until others are lent.
  struct OfHost {
    explicit OfHost(const Device& first) : lent(first) {}
    LentMemory lent;
    std::unique_ptr<PinnedFloats> parameters, push;
  };
  const auto memory = std::make_shared<OfHost>(devices.front());
  const auto pin = [memory](absl::Span<float> floats) { memory->lent.Pin(floats); };
  absl::StatusOr<std::unique_ptr<StagedModel>> model = StagedModel::Create(spec, seed, devices, pin);
  if (!model.ok()) return model.status();
  for (auto* own : {&memory->parameters, &memory->push}) {
    auto made = PinnedFloats::Create((*model)->elements());
    if (!made.ok()) return made.status();
    *own = *std::move(made);
    memory->lent.Know((*own)->span());
  }
  absl::c_copy((*model)->parameters(), memory->parameters->span().begin());
  (*model)->UseParameters(memory->parameters->span());
  (*model)->UsePush(memory->push->span());
  return std::make_unique<StageGroup>(*std::move(model), options, MakeBatchMemory(devices.front()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> MakeGroup(const ModelSpec& spec, uint64_t seed,
                                                      const std::vector<Device>& devices, const GroupOptions& options) {
  if (const absl::Status loaded = LoadLibTorchForGpus(); !loaded.ok()) return loaded;
  if (options.stages > 1) return MakeStages(spec, seed, devices, options);
  // Before the scheduler would call this worker stalled.
  return GpuGroup::Create(spec, seed, devices, options.timeouts.stall / 2, options.trace);
}

}  // namespace slackline::worker::gpu
