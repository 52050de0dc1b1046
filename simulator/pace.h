// The durations of a simulated worker's steps.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "simulator/random_stream.h"
#include "simulator/worker_plan.h"

namespace slackline::simulator {

// Thread-safety: none.
class Pace {
 public:
  // `worker` is the worker's number, which selects its random numbers.
  Pace(const WorkerPlan& plan, const ComputeCost& cost, uint64_t seed, uint32_t worker);

  struct Work {
    uint64_t samples = 0;
    uint64_t batches = 1;
  };
  // Returns the duration of a step that begins now, including the pauses during it.
  absl::Duration Step(const Work& work, absl::Time now);
  // Returns the time until the end of the current pause of the latest step; 0 if there is none.
  absl::Duration LeftOfPause(absl::Time now) const;

 private:
  void PlanPause(absl::Time from);

  const WorkerPlan& plan_;
  const ComputeCost cost_;
  RandomStream factors_;
  RandomStream pauses_;
  absl::Time pause_ = absl::InfiniteFuture();  // begin of the next pause
  struct Pause {
    absl::Time begin, end;
  };
  std::vector<Pause> pauses_of_step_;
};

}  // namespace slackline::simulator
