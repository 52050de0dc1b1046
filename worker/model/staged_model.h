// StagedModel: a sequential model cut into stages. The stages compute separately, one micro-batch after the other. Only
// the implementation uses LibTorch.
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

// StagedModel behaves as the whole Model: its parameters() and push() are in the host's memory. A step in parts
// consists of BeginStep(); for each stage and micro-batch one Forward() and one Backward(); then EndStage() of each
// stage, and result().
//
// On GPUs each device holds only the parameters and gradients of its stage. Forward() and Backward() enqueue their work
// and return.
//
// Thread-safety: each stage has a thread. Forward(stage, i) must follow Forward(stage - 1, i). Backward(stage, i) must
// follow Forward(stage, i) and Backward(stage + 1, i). Each stage takes the micro-batches in order. The caller ensures
// all this. Everything else is for one thread, between steps.
// Copies:        on CPUs none. On GPUs: parameters to the device once per step, gradients from it; each tensor that
//                goes from stage to stage, once.
class StagedModel : public Model {
 public:
  // Pins host memory that devices copy from and to. May be null.
  using Pin = std::function<void(absl::Span<float> memory)>;
  // Creates one stage on each device. All devices are of one kind.
  //   kInvalidArgument  the model cannot be cut into so many stages, or not computed in its precision on these devices
  //   kInternal         LibTorch's message: there is no such device, or no memory
  static absl::StatusOr<std::unique_ptr<StagedModel>> Create(const ModelSpec& spec, uint64_t seed,
                                                             const std::vector<Device>& devices, const Pin& pin = {});

  virtual size_t stages() const = 0;
  // Cuts the batch into `micro_batches` parts; if the division leaves a remainder, the first parts are larger. The
  // batch is borrowed until the last result().
  //   kInvalidArgument  as Step(); fewer images than parts
  virtual absl::Status BeginStep(const BatchView& batch, size_t micro_batches) = 0;
  virtual absl::Status Forward(size_t stage, size_t micro_batch) = 0;
  virtual absl::Status Backward(size_t stage, size_t micro_batch) = 0;
  // Blocks, after the stage's last Backward(), until its device has finished. Returns the first element of the stage's
  // gradients, which are then in push(), up to the first element of the next stage.
  virtual absl::StatusOr<uint64_t> EndStage(size_t stage) = 0;
  // Replaces EndStage() if the step has failed. Blocks until the stage's device neither reads nor writes host memory.
  virtual void DropStage(size_t stage) = 0;
  // Returns the result of all parts together.
  virtual StepResult result() const = 0;
};

}  // namespace slackline::worker
