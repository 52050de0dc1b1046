// Course of a worker through a job: which act follows which. A worker joins, takes the weights, and asks for work until
// it leaves. A life is over when the scheduler or a server no longer knows this worker (kFailedPrecondition); the
// worker then joins again. The trainer, the embedded worker and the simulator perform the acts that the course names.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "worker/scheduler_link/work.h"

namespace slackline::worker {

// Registers, the first time or again, waits until the worker is live, and gets the shard map.
struct JoinAct {};
// Opens a client, sends the initial weights if this worker must, and pulls the newest ones.
struct EnterAct {};
// Asks the scheduler for work.
struct AskAct {
  RangeId done;  // range just finished; 0 for none
};
// Tells the scheduler that the worker leaves, and ends.
struct LeaveAct {
  absl::Status status;  // OK: in good order
  std::string reason;
};
// Besides: trains a range; evaluates, reports it and, unless it was final, pulls the newest weights; waits on standby.
// A final evaluation reads the weights with a client that only pulls.
using Act = std::variant<JoinAct, EnterAct, AskAct, RangeWork, EvaluationWork, StandbyWork, LeaveAct>;

// Returns the reason that the scheduler is told.
std::string LeaveReason(const LeaveAct& act);

// Pure: no thread, no clock, no I/O.
//
// Thread-safety: none.
class Course {
 public:
  // Number of consecutive lives without a single step that are tolerated; after one more, the worker leaves.
  static constexpr int kFruitlessLivesMax = 3;

  // The act to perform now.
  const Act& act() const { return act_; }
  bool leaves() const { return std::holds_alternative<LeaveAct>(act_); }
  // Reason with which the client, if there is one, is closed before the act; nullopt if it stays.
  const std::optional<std::string>& goodbye() const { return goodbye_; }

  // Reports how the act has ended. An error may also come from work that goes on beside an act.
  void Done(const absl::Status& status);
  // Reports the answer to AskAct.
  void Got(const Work& work);
  // Reports that the range or the evaluation is given up, so that the worker asks for other work.
  void GiveUp();
  // Reports that servers have answered a step.
  void Stepped() { fruitful_ = true; }
  // Reports that the job is over, or that the worker was stopped.
  void End(const absl::Status& status, const std::string& reason);

 private:
  void EndLife(const absl::Status& status);
  void To(Act act, std::optional<std::string> goodbye = std::nullopt);

  Act act_ = JoinAct();
  std::optional<std::string> goodbye_;
  bool entered_ = false;  // has a client that pushes
  bool fruitful_ = false;
  int fruitless_ = 0;
};

}  // namespace slackline::worker
