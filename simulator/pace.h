// How long each step of a simulated worker takes.
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
  // `worker`: its number, for the random numbers.
  Pace(const WorkerPlan& plan, const ComputeCost& cost, uint64_t seed, uint32_t worker);

  struct Work {
    uint64_t samples = 0;
    uint64_t batches = 1;
  };
  // Duration of a step that begins now; with the pauses that fall into it.
  absl::Duration Step(const Work& work, absl::Time now);
  // Until the end of the pause of the latest step that is on; 0 when none is.
  absl::Duration LeftOfPause(absl::Time now) const;

 private:
  void PlanPause(absl::Time from);

  const WorkerPlan& plan_;
  const ComputeCost cost_;
  RandomStream factors_;
  RandomStream pauses_;
  absl::Time pause_ = absl::InfiniteFuture();  // the next one's beginning
  struct Pause {
    absl::Time begin, end;
  };
  std::vector<Pause> pauses_of_step_;
};

}  // namespace slackline::simulator
