// A worker process. Its course, membership, progress and messages are the worker's own, and so is the Session of its
// exchange (exchange.h). Calls to the scheduler and steps take virtual time. A step makes a push; nothing is computed.
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
#include "worker/base/progress.h"
#include "worker/life/course.h"
#include "worker/scheduler_link/member_state.h"

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

  // Performs the act of the course.
  void Perform();
  void Perform(const worker::JoinAct& act);
  void Perform(const worker::EnterAct& act);
  void Perform(const worker::AskAct& ask);
  void Perform(const worker::RangeWork& range);
  void Perform(const worker::EvaluationWork& work);
  void Perform(const worker::StandbyWork& standby);
  void Perform(const worker::LeaveAct& leave);
  // Reports how the act has ended, and performs the next one.
  void Done(const absl::Status& status);

  void Register();
  void Beat();
  void Digest(const absl::StatusOr<wire::HeartbeatReply>& reply);
  void FetchMap(bool enter);
  void Train();
  void Computed();
  void FinishSteps(size_t left, const std::function<void()>& then);
  void Report(const worker::EvaluationWork& work);
  void CloseExchange();
  worker::StepTotals TakeProgress();
  Sender sender() const { return {member_.life().worker, member_.life().incarnation}; }
  absl::Duration scheduler_return() const;

  Scene& scene_;
  const uint32_t pid_;
  const absl::Duration step_;
  Random random_;
  uint64_t token_ = 0;  // number of the present life in the job
  bool ended_ = false;
  worker::Course course_;
  worker::MemberState member_;
  worker::ProgressBoard board_;
  wire::GetShardMapReply map_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<Exchange>> closed_;
  worker::RangeWork range_;
  uint64_t trained_ = 0;  // samples of the range
};

}  // namespace slackline::world
