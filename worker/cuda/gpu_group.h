// GpuGroup: the local group on GPUs, with one thread per device and NCCL between the devices.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "worker/cuda/host_memory.h"
#include "worker/cuda/replica.h"
#include "worker/group/arrival_gate.h"
#include "worker/group/chunk_store.h"
#include "worker/group/local_group.h"

namespace slackline::worker::gpu {

// StepProgress counts what has arrived on the host during a step.
//
// Thread-safety: safe.
class StepProgress {
 public:
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void BucketArrived() ABSL_LOCKS_EXCLUDED(mutex_);
  void DeviceLeft() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Seen {
    uint64_t buckets = 0;
    size_t devices_left = 0;
    bool operator==(const Seen&) const = default;
  };
  // Returns as soon as the counts differ from `known`, or after `timeout`.
  Seen Await(const Seen& known, absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  Seen seen_ ABSL_GUARDED_BY(mutex_);
};

// DeviceThread runs the tasks of one device.
//
// Thread-safety: one caller.
// Threads:       one, started in the constructor and joined in the destructor, which waits for the current task.
class DeviceThread {
 public:
  DeviceThread() : thread_(&DeviceThread::Run, this) {}
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Runs `task` on the thread. Requires: the previous task has nothing left to do except return.
  void Start(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  std::function<void()> task_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// GpuGroup trains replicas on several GPUs. The caller's thread announces the parts of the sum that are on the host,
// while the devices compute the rest. A device that fails, or that is silent for too long, ends the group for good:
// NCCL cannot continue without it.
//
// Thread-safety: none.
class GpuGroup final : public LocalGroup {
 public:
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Create(const ModelSpec& spec, uint64_t seed,
                                                            const std::vector<Device>& devices,
                                                            absl::Duration silence_max, Trace* trace = nullptr);
  // Abandons a thread that hangs in its device, together with everything that it uses.
  ~GpuGroup() override;

  size_t devices() const override { return names_.size(); }
  Model& model() override { return *host_; }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override;
  bool reads_as_they_arrive() const override { return true; }
  ChunkEncoder* encoder() override { return &chunks_; }
  images::BatchMemory* batch_memory() override { return batches_.get(); }
  absl::Status given_up() const override { return given_up_; }

 private:
  class HostModel;

  GpuGroup(const std::vector<Device>& devices, absl::Duration silence_max)
      : names_(devices), silence_max_(silence_max), results_(devices.size(), StepResult{}) {}

  absl::Status Prepare(const ModelSpec& spec, uint64_t seed);
  // Sets the memory that receives the step's push. Call it only after everything that was pushed last has been used.
  absl::Status PrepareDestination();
  absl::Status Await(const Model::Ready& ready);
  absl::Status CheckDevices() const;
  absl::StatusOr<StepResult> Total(size_t samples) const;
  absl::Status GiveUp(const absl::Status& why);

  const std::vector<Device> names_;
  const absl::Duration silence_max_;
  const SteadyTime time_;
  Trace* trace_ = nullptr;
  StepProgress progress_;
  // Declared before the replicas, which borrow the plan.
  ChunkStore chunks_{{.allocate = MakePinnedBytes,
                      .prepare = [this](const ChunkPlan& plan) { return replicas_.front()->EncodeBy(plan); }}};
  const std::unique_ptr<images::BatchMemory> batches_ = MakeBatchMemory(names_.front());
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<Model> host_;
  // Results by device. Each belongs to its device's thread until that device has left the step.
  std::vector<absl::StatusOr<StepResult>> results_;
  absl::Time begun_;  // begin of the step
  ArrivalGate gate_;
  Replica::Destination destination_;  // used by the first device, from the last opening of the gate on
  absl::Status given_up_;
  bool moves_teacher_ = false;  // before the next step
  bool hangs_ = false;
  std::vector<std::unique_ptr<DeviceThread>> threads_;
};

}  // namespace slackline::worker::gpu
