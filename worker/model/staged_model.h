// A sequential model cut into stages, which are computed apart from each other, part after part of a batch. LibTorch
// stays behind this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/model/model.h"

namespace slackline::worker {

// As a Model it is the whole one: its parameters() and push() are in the host's memory. A step in parts: BeginStep();
// for each stage and micro-batch one Forward() and one Backward(); then EndStage() of each stage, and result().
//
// On GPUs each device has its stage's parameters and gradients, and nothing of the others; both calls say what is to be
// done, and return.
//
// Thread-safety: each stage has a thread. Forward(stage, i) needs that Forward(stage - 1, i) is over, Backward(stage,
//                i) that Forward(stage, i) and Backward(stage + 1, i) are, and each stage takes the micro-batches in
//                their order; who calls sees to that. All else is for one thread, between steps.
// Copies:        on CPUs none. On GPUs parameters to the device once a step, gradients from it; what goes from stage to
//                stage, once.
class StagedModel : public Model {
 public:
  // What the host's memory that devices copy from and to is given to, so that it is pinned. May be null.
  using Pin = std::function<void(absl::Span<float> memory)>;
  // A stage on each device, which are of one kind.
  //   kInvalidArgument  the model cannot be cut so, or not computed in its precision there
  //   kInternal         LibTorch's message: there is no such device, or no memory
  static absl::StatusOr<std::unique_ptr<StagedModel>> Create(const ModelSpec& spec, uint64_t seed,
                                                             const std::vector<Device>& devices, const Pin& pin = {});

  virtual size_t stages() const = 0;
  // Cuts the batch, which is borrowed until the last result(), into so many parts, first ones larger where it does not
  // divide.
  //   kInvalidArgument  as Step(); fewer images than parts
  virtual absl::Status BeginStep(const BatchView& batch, size_t micro_batches) = 0;
  virtual absl::Status Forward(size_t stage, size_t micro_batch) = 0;
  virtual absl::Status Backward(size_t stage, size_t micro_batch) = 0;
  // After the stage's last Backward(), waits for its device: its gradients are in push() from the element that is
  // returned, up to where the next stage's begin.
  virtual absl::StatusOr<uint64_t> EndStage(size_t stage) = 0;
  // In the place of EndStage() where the step has failed: waits until the stage's device neither reads nor writes
  // anything of the host's.
  virtual void DropStage(size_t stage) = 0;
  // Of all parts together.
  virtual StepResult result() const = 0;
};

}  // namespace slackline::worker
