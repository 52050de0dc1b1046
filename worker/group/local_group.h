// The devices of one worker: each takes its part of a batch; their gradients are summed before anything is pushed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Replicas on CPU threads. A batch is cut in proportion (first parts one larger where it does not divide); the
// result equals one device on the whole batch up to float32 rounding (with batch normalisation each device normalises
// by its own part). Buffers become the mean of the replicas' values, weighted by their samples.
//
// Thread-safety: none.
// Threads:       one a device beyond the first, born in Create(), joined in the destructor.
class LocalGroup {
 public:
  virtual ~LocalGroup() = default;

  //   kInvalidArgument  `devices` names something else than "cpu"; empty means one cpu
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Create(const ModelSpec& spec, uint64_t seed,
                                                            const std::vector<std::string>& devices);

  virtual size_t devices() const = 0;
  // The first replica: its parameters() are what a pull writes, its push() what is pushed.
  virtual Model& model() = 0;
  // One step of all devices on the parameters of model(). Calls `ready` as Model::Step() does, if there is one device;
  // the sum of several is ready when the step is over.
  virtual absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) = 0;
  absl::StatusOr<StepResult> Step(const BatchView& batch) {
    return Step(batch, [](uint64_t) {});
  }
};

}  // namespace slackline::worker
