// LocalGroup: the devices of one worker. Each device takes its part of a batch, and their gradients are summed before
// they are pushed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time/timeouts.h"
#include "worker/base/chunk_encoder.h"
#include "worker/base/trace.h"
#include "worker/group/buckets.h"
#include "worker/model/model.h"

namespace slackline::worker {

struct GroupOptions {
  Timeouts timeouts = {};
  BucketSizes buckets = {};
  // Number of stages, and number of parts in which each batch passes through them. With more than 1 stage, the devices
  // are the stages of one model. 0 parts means four times the number of stages.
  size_t stages = 1;
  size_t micro_batches = 0;
  // Trace of the group. Outlives the group; may be null.
  Trace* trace = nullptr;
};

// LocalGroup runs replicas, or stages, on CPU threads.
//
// Replicas split a batch in proportion; if the division leaves a remainder, the first parts are one sample larger. The
// result equals that of one device on the whole batch, up to float32 rounding. With batch normalisation, each device
// normalises by its own part. Buffers become the mean of the replicas' values, weighted by their samples. The sum is
// the same in every run, bit for bit.
//
// Thread-safety: none.
class LocalGroup {
 public:
  virtual ~LocalGroup() = default;

  // Creates a group of CPUs.
  //   kInvalidArgument  `devices` names anything other than "cpu"; empty means one cpu. Or the model cannot be cut into
  //                     so many stages, or the number of stages differs from the number of devices.
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Create(const ModelSpec& spec, uint64_t seed,
                                                            const std::vector<std::string>& devices,
                                                            const GroupOptions& options = {});

  virtual size_t devices() const = 0;
  // Model of the first replica. A pull writes its parameters(), and its push() is pushed.
  virtual Model& model() = 0;
  // Runs one step of all devices on the parameters of model(). Calls `ready` as Model::Step() does; with several
  // devices, it announces the elements whose sum is complete.
  //   kDeadlineExceeded  a device hangs; names the device and the bucket that is awaited. The device may still read the
  //                      batch and parameters. The group is given up: later steps return the same status.
  //   others             the error of the first device that failed; names the device
  virtual absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) = 0;
  absl::StatusOr<StepResult> Step(const BatchView& batch) {
    return Step(batch, [](uint64_t) {});
  }
  // True if a step may begin while parameters are arriving (BatchView::arrival), and gains by it. Other groups wait for
  // all parameters.
  virtual bool reads_as_they_arrive() const { return false; }
  // Encoder with which steps leave gradients encoded. Null if the group cannot encode.
  virtual ChunkEncoder* encoder() { return nullptr; }
  // Memory from which the devices copy batches asynchronously. The group outlives all batches in it. Null: nothing is
  // copied.
  virtual images::BatchMemory* batch_memory() { return nullptr; }
  // Reason why the group cannot step any more, or OK. The thread of a device that hangs cannot be joined, so the
  // process must then end without destroying the group.
  virtual absl::Status given_up() const { return absl::OkStatus(); }
};

}  // namespace slackline::worker
