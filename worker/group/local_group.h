// The devices of one worker: each takes its part of a batch; their gradients are summed before they are pushed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/timeouts.h"
#include "worker/chunk_encoder.h"
#include "worker/group/buckets.h"
#include "worker/model/model.h"
#include "worker/trace.h"

namespace slackline::worker {

struct GroupOptions {
  Timeouts timeouts = {};
  BucketSizes buckets = {};
  // Above 1: the devices are the stages of one model, through which each batch goes in so many parts; 0 means four
  // times as many as there are stages.
  size_t stages = 1;
  size_t micro_batches = 0;
  // Outlives the group; may be null.
  Trace* trace = nullptr;
};

// Replicas, or stages, on CPU threads. With replicas a batch is cut in proportion (first parts one larger where it does
// not divide); the result equals one device on the whole batch up to float32 rounding (with batch normalisation each
// device normalises by its own part). Buffers become the mean of the replicas' values, weighted by their samples. The
// sum is the same in every run, bit for bit.
//
// Thread-safety: none.
class LocalGroup {
 public:
  virtual ~LocalGroup() = default;

  //   kInvalidArgument  `devices` names something else than "cpu"; empty means one cpu. Or the model cannot be cut into
  //                     so many stages, or these are not as many as the devices.
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Create(const ModelSpec& spec, uint64_t seed,
                                                            const std::vector<std::string>& devices,
                                                            const GroupOptions& options = {});

  virtual size_t devices() const = 0;
  // The first replica: its parameters() are what a pull writes, its push() what is pushed.
  virtual Model& model() = 0;
  // One step of all devices on the parameters of model(). Calls `ready` as Model::Step() does; with several devices it
  // is their sum that is complete.
  //   kDeadlineExceeded  a device hangs: it is named, with the bucket that is awaited. It may still read the batch and
  //                      parameters. The group is given up: later steps get the same status.
  //   others             of the first device that failed, which is named
  virtual absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) = 0;
  absl::StatusOr<StepResult> Step(const BatchView& batch) {
    return Step(batch, [](uint64_t) {});
  }
  // Whether a step may begin while parameters are on their way (BatchView::arrival), and gains by it. Others wait for
  // all of them.
  virtual bool reads_as_they_arrive() const { return false; }
  // Where the group's steps can leave gradients encoded. Null where they cannot.
  virtual ChunkEncoder* encoder() { return nullptr; }
  // What its devices copy batches from beside everything else; the group outlives them. Null: nothing is copied.
  virtual BatchMemory* batch_memory() { return nullptr; }
  // Why there are no more steps, if that is so: the thread of a device that hangs cannot be joined, so that the process
  // must end without destroying the group.
  virtual absl::Status given_up() const { return absl::OkStatus(); }
};

}  // namespace slackline::worker
