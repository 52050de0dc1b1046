// The local group on CPUs: a thread a device. No LibTorch: a device is a Model.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/group/bucket_sum.h"
#include "worker/group/local_group.h"
#include "worker/group/task_thread.h"

namespace slackline::worker {

// One device computes in the caller's thread; several compute in threads of their own, while the caller hands out what
// of the sum is ready. No device waits for another before it is through.
//
// Copies:        none: all devices read the parameters of the first, and the sum is made in the first one's push().
// Thread-safety: none.
// Threads:       with several devices one each, born in the constructor, joined in the destructor.
class ThreadGroup final : public LocalGroup {
 public:
  // Requires: at least one device, all with the same tensors.
  ThreadGroup(std::vector<std::unique_ptr<Model>> devices, const GroupOptions& options);
  ~ThreadGroup() override;

  size_t devices() const override { return models_.size(); }
  Model& model() override { return *models_.front(); }
  using LocalGroup::Step;
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override;
  // One device alone: several would take a wait for servers for one of theirs that hangs.
  bool reads_as_they_arrive() const override {
    return models_.size() == 1 && models_.front()->elements() == models_.front()->trained_elements();
  }
  absl::Status given_up() const override { return given_up_; }

 private:
  // A step of one device, in whatever thread.
  absl::StatusOr<StepResult> StepOf(size_t device, const BatchView& part, const Model::Ready& ready);
  void Start(const BatchView& batch, size_t busy);
  // The thread of a device.
  void Compute(size_t device, const BatchView& part);
  // Until all devices are through.
  absl::Status Await(const Model::Ready& ready);
  absl::StatusOr<StepResult> Total() const;
  absl::Duration silence_max() const;

  const GroupOptions options_;
  const std::vector<std::unique_ptr<Model>> models_;
  std::vector<TraceRow> rows_;  // by device
  BucketSum sum_;
  const SteadyTime time_;
  // Of the devices that compute. Each is its device's until that has left the sum.
  std::vector<absl::StatusOr<StepResult>> results_;
  absl::Duration longest_step_ = absl::ZeroDuration();
  absl::Status given_up_;
  std::vector<std::unique_ptr<TaskThread>> threads_;
};

}  // namespace slackline::worker
