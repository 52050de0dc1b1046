// ThreadGroup: the local group on CPUs, with one thread per device. Does not use LibTorch: a device is a Model.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/group/bucket_sum.h"
#include "worker/group/local_group.h"
#include "worker/group/task_thread.h"

namespace slackline::worker {

// ThreadGroup computes in the caller's thread if there is one device. Several devices compute in their own threads,
// while the caller announces the parts of the sum that are ready. No device waits for another one before it has
// finished.
//
// Copies:        none: all devices read the first device's parameters, and the sum is made in the first device's
//                push().
// Thread-safety: none.
// Threads:       with several devices one each, started in the constructor, joined in the destructor.
class ThreadGroup final : public LocalGroup {
 public:
  // Requires: at least one device, all with the same tensors.
  ThreadGroup(std::vector<std::unique_ptr<Model>> devices, const GroupOptions& options);
  ~ThreadGroup() override;

  size_t devices() const override { return models_.size(); }
  Model& model() override { return *models_.front(); }
  using LocalGroup::Step;
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override;
  // True only for a single device: with several devices, a wait for servers would look like a device that hangs.
  bool reads_as_they_arrive() const override {
    return models_.size() == 1 && models_.front()->elements() == models_.front()->trained_elements();
  }
  absl::Status given_up() const override { return given_up_; }

 private:
  // Runs a step of one device, in any thread.
  absl::StatusOr<StepResult> StepOf(size_t device, const BatchView& part, const Model::Ready& ready);
  void Start(const BatchView& batch, size_t busy);
  // Runs in the thread of a device.
  void Compute(size_t device, const BatchView& part);
  // Blocks until all devices have finished.
  absl::Status Await(const Model::Ready& ready);
  absl::StatusOr<StepResult> Total() const;
  absl::Duration silence_max() const;

  const GroupOptions options_;
  const std::vector<std::unique_ptr<Model>> models_;
  std::vector<TraceRow> rows_;  // indexed by device
  BucketSum sum_;
  const SteadyTime time_;
  // Results of the devices that compute. Each belongs to its device's thread until the device has left the sum.
  std::vector<absl::StatusOr<StepResult>> results_;
  absl::Duration longest_step_ = absl::ZeroDuration();
  absl::Status given_up_;
  std::vector<std::unique_ptr<TaskThread>> threads_;
};

}  // namespace slackline::worker
