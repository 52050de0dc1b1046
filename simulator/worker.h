// A simulated worker process in virtual time: the worker's own course, membership, session and progress, with time in
// the place of what the trainer and the client do.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "simulator/pace.h"
#include "simulator/server.h"
#include "simulator/world.h"
#include "worker/base/progress.h"
#include "worker/client/session.h"
#include "worker/life/course.h"
#include "worker/scheduler_link/member_state.h"

namespace slackline::simulator {

// A range of data that a worker works on.
struct RangeInWork {
  worker::RangeWork work;
  std::vector<uint32_t> images;
  size_t next = 0;  // index of the next image
  absl::Time began;
};

// Thread-safety: none.
// Ownership:     borrows the world and the servers, which outlive all events.
class Worker final : public WorkerEndpoint {
 public:
  // `number` counts from 1. `servers` are in the order of their numbers.
  Worker(World& world, const WorkerPlan& plan, uint32_t number, std::vector<std::unique_ptr<Server>>& servers);

  // Plans when the worker starts, ends and returns.
  void Plan();

  size_t endpoint() const override { return endpoint_; }
  void Deliver(const std::vector<ShardReply>& replies) override;

 private:
  // State of one life. A life lasts from the process's start, or its last registration, to its end.
  struct Step {
    Sequence sequence;
    worker::StepFacts facts;
  };
  struct Held {
    Clock64 clock;
    ps::SliceView weights;
  };

  // Runs `event` after `delay`, if this life has not ended by then.
  void After(absl::Duration delay, std::function<void()> event);
  // Runs `event` after the one-way latency to or from the scheduler, if this life has not ended by then.
  void AfterLatency(std::function<void()> event);
  // Calls the scheduler and passes its reply to `then`.
  template <typename Call, typename Then>
  void Ask(Call call, Then then);

  // Plans the next death of a class that dies time and again, counted from a start at `start`.
  void PlanDeath(absl::Time start);

  // --- A life ---
  void Start();
  void Stop(bool in_good_order);
  void Register();
  void Beat();
  void Hear(const absl::StatusOr<wire::HeartbeatReply>& reply);
  void GetMap();
  void CloseStreams();
  // Performs the act of the course.
  void Perform();
  void Perform(const worker::JoinAct& act);
  void Perform(const worker::EnterAct& act);
  void Perform(const worker::AskAct& ask);
  void Perform(const worker::RangeWork& work);
  void Perform(const worker::EvaluationWork& work);
  void Perform(const worker::StandbyWork& standby);
  void Perform(const worker::LeaveAct& leave);
  // Reports how the act has ended, and performs the next one. An error from which no worker can recover fails the job.
  void Done(const absl::Status& status);
  worker::MemberState Newcomer() const;
  ps::Sender sender() const { return {member_.life().worker, member_.life().incarnation}; }

  // --- Work ---
  uint32_t BatchSizeOf(const worker::RangeWork& work) const;
  // Continues with the range as far as possible.
  void Continue();
  void Compute();
  // Pushes the gradient once the computation is over.
  void Push(absl::Duration took);
  // Reports signs of life as the trainer does: after each batch of a step with several batches, and throughout an
  // evaluation. During a first step also reports that it uses processor time, as a real worker's heartbeats do.
  void NoteBatches();
  void SendAll(const std::vector<worker::Session::Send>& asks, bool hello, std::shared_ptr<const Gradient> gradient);
  void Account(const ShardReply& reply);
  // Records the finished steps, oldest first.
  void FinishSteps();
  void TakeWeights(Clock64 clock);

  World& world_;
  const WorkerPlan plan_;
  const uint32_t number_;
  std::vector<std::unique_ptr<Server>>& servers_;
  const size_t endpoint_;
  Pace pace_;
  RandomStream noise_;  // of poisoned pushes
  RandomStream deaths_;

  uint64_t life_number_ = 0;
  uint32_t processes_ = 0;
  bool running_ = false;
  worker::MemberState member_;
  worker::Course course_;
  worker::ProgressBoard board_;
  std::vector<size_t> server_of_;  // index of the server of each shard

  std::optional<worker::Session> session_;
  bool pulling_ = false;  // waits for a pull without a step: the first weights, or those after an evaluation
  // Weights of each shard: first those in use, then those that arrived for later steps.
  std::vector<std::vector<Held>> held_;
  std::optional<RangeInWork> range_;
  std::shared_ptr<OptimizerState> local_state_;  // belongs to this life; null while a round computes
  uint64_t pulled_bytes_ = 0;                    // since the last finished step
  double samples_per_second_ = 0;
  bool evaluating_ = false;
  Weights evaluated_;
  bool computing_ = false;
  Computation::Pending pending_;  // gradient of the current step
  absl::Time computing_since_;
  absl::Duration batch_takes_;
  std::deque<Step> begun_;  // steps in flight, oldest first
  std::optional<absl::Time> blocked_since_;
};

}  // namespace slackline::simulator
