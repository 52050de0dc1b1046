// A worker process: a Session (exchange.h). Its line to the scheduler (worker/scheduler_link/scheduler_link.h) and its
// loop (worker/trainer/trainer.h) are simulated in virtual time. A step takes time and makes a push; nothing is
// computed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler.pb.h"
#include "tests/world/exchange.h"
#include "tests/world/scene.h"
#include "tests/world/scheduler.h"

namespace slackline::world {

// Thread-safety: none.
// Ownership:     borrows the scene.
class WorkerProcess : public Host {
 public:
  WorkerProcess(Scene& scene, std::string name, uint32_t pid);
  ~WorkerProcess() override;

  // Leaves in good order, as on SIGTERM.
  void Leave(const std::string& reason);

 private:
  template <typename Reply>
  using Serve = std::function<absl::StatusOr<Reply>(SchedulerProcess&)>;
  template <typename Reply>
  using Then = std::function<void(const absl::StatusOr<Reply>&)>;

  // Calls until an answer is not worth another attempt, for at most `total`. Answers to an earlier life are ignored.
  template <typename Reply>
  void Call(absl::Duration total, Serve<Reply> serve, Then<Reply> then);
  template <typename Reply>
  void Attempt(absl::Time end, std::shared_ptr<Backoff> backoff, Serve<Reply> serve, Then<Reply> then);
  void After(absl::Duration wait, std::function<void()> what);

  void Join();
  void Beat();
  void Digest(const absl::StatusOr<wire::HeartbeatReply>& reply);
  void FetchMap(bool enter);
  void Enter();
  void NextWork(uint64_t range_done);
  void Work(const wire::NextTaskReply& work);
  void Train();
  void Computed();
  void FinishSteps(size_t left, const std::function<void()>& then);
  void Evaluate(const wire::EvaluateTask& task);
  void CloseExchange();
  // Ends this life in the job, for this reason.
  void EndLife(const absl::Status& status);
  void End(const absl::Status& status);
  wire::HeartbeatRequest MakeHeartbeat() const;
  wire::WorkerProgress MakeProgress() const;
  absl::Duration scheduler_return() const;

  Scene& scene_;
  const uint32_t pid_;
  const absl::Duration step_;
  Random random_;
  uint64_t token_ = 0;  // number of the present life in the job
  bool ended_ = false;
  bool live_ = false;
  Sender self_;
  Clock64 first_clock_;
  bool send_seed_ = false;
  absl::Time heard_;
  wire::GetShardMapReply map_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<Exchange>> closed_;
  std::optional<wire::RangeTask> range_;
  uint64_t trained_ = 0;  // samples of the range
  uint64_t steps_ = 0, samples_ = 0, steps_at_join_ = 0;
  absl::Time moved_;
  int fruitless_ = 0;
};

}  // namespace slackline::world
