// A simulated worker process: the loop of worker/trainer.h in virtual time, with the worker's own session and progress.
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
#include "worker/client/session.h"
#include "worker/progress.h"
#include "worker/scheduler_link.h"

namespace slackline::simulator {

// A range of data that a worker is at.
struct RangeInWork {
  worker::RangeWork work;
  std::vector<uint32_t> images;
  size_t next = 0;  // of the images
  absl::Time began;
};

// Thread-safety: none.
// Ownership:     borrows the world and the servers, which outlive all events.
class Worker final : public Peer {
 public:
  // `number` counts from 1. `servers` are in the order of their numbers.
  Worker(World& world, const WorkerPlan& plan, uint32_t number, std::vector<std::unique_ptr<Server>>& servers);

  // Plans its beginning and its ends.
  void Plan();

  size_t endpoint() const override { return endpoint_; }
  void Deliver(const std::vector<ShardReply>& replies) override;

 private:
  // What one life has, from the process's start or its last registration to its end.
  struct Step {
    Sequence sequence;
    worker::StepFacts facts;
  };
  struct Held {
    Clock64 clock;
    ps::SliceView weights;
  };

  // Runs `event` after `delay`, if this life still goes on then.
  void After(absl::Duration delay, std::function<void()> event);
  // The same, one way to or from the scheduler.
  void AfterLatency(std::function<void()> event);
  // Calls the scheduler and hears what it answers.
  template <typename Call, typename Then>
  void Ask(Call call, Then then);
  wire::HeartbeatRequest MakeHeartbeat();

  // --- A life ---
  void Start();
  void Stop(bool in_good_order);
  void Register();
  void Beat();
  void Hear(const absl::StatusOr<wire::HeartbeatReply>& reply);
  void Enter(const wire::HeartbeatReply& reply);
  void JoinAgain();
  void CloseStreams();
  void Leave(const std::string& reason);
  // The scheduler or a server has no place for this life any more, or something is wrong.
  void Refused(const absl::Status& status);

  // --- Work ---
  void AskWork();
  void Begin(const worker::Work& work);
  uint32_t BatchSizeOf(const worker::RangeWork& work) const;
  void BeginRange(const worker::RangeWork& work);
  void BeginEvaluation(const worker::EvaluationWork& work);
  // Goes on with the range as far as it can.
  void Continue();
  void Compute();
  // The computation is over.
  void Push(absl::Duration took);
  // A step of several batches shows a sign of life after each, and an evaluation all along, as the trainer does. A
  // first step shows the processor time that it uses, as a real worker's heartbeats do.
  void NoteBatches();
  void SendAll(const std::vector<worker::Session::Send>& asks, bool hello, std::shared_ptr<const Gradient> gradient);
  void Account(const ShardReply& reply);
  // Steps that are over, oldest first.
  void FinishSteps();
  void TakeWeights(Clock64 clock);

  World& world_;
  const WorkerPlan plan_;
  const uint32_t number_;
  std::vector<std::unique_ptr<Server>>& servers_;
  const size_t endpoint_;
  Pace pace_;

  uint64_t life_number_ = 0;
  uint32_t processes_ = 0;
  bool running_ = false;
  worker::Membership life_;
  worker::ProgressBoard board_;
  bool entered_ = false;
  std::vector<size_t> server_of_;  // by shard

  std::optional<worker::Session> session_;
  bool pulling_ = false;                // the first weights
  std::vector<std::deque<Held>> held_;  // by shard: what it computes on, then what arrived for later steps
  std::optional<RangeInWork> range_;
  std::shared_ptr<OptimizerState> local_state_;  // of this life; away while a round computes
  RangeId range_done_;
  uint64_t pulled_bytes_ = 0;  // since the last step
  double samples_per_second_ = 0;
  bool evaluating_ = false;
  Weights evaluated_;
  bool computing_ = false;
  Computation::Pending pending_;  // its gradient
  absl::Time computing_since_;
  absl::Duration batch_takes_;
  std::deque<Step> begun_;  // in flight, oldest first
  std::optional<absl::Time> blocked_since_;
};

}  // namespace slackline::simulator
