// What kind of machine each simulated worker is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "job.pb.h"

namespace slackline::simulator {

struct LinkSpeed {
  absl::Duration latency;       // one way
  double bytes_per_second = 0;  // each way; 0: unlimited
};

struct WorkerPlan {
  std::string name;     // worker-1, ...
  double slowdown = 1;  // of its class, times that of worker.slowdown
  double jitter = 0;
  absl::Duration pause_every;  // mean; 0: never
  absl::Duration pause;
  bool pause_silent = false;
  absl::Time joins;
  absl::Time leaves = absl::InfiniteFuture();
  absl::Time dies = absl::InfiniteFuture();
  absl::Duration returns_after = absl::InfiniteDuration();
  LinkSpeed link;
};

// One a worker, in the order of their numbers. A class with more workers than are left has those.
std::vector<WorkerPlan> PlanWorkers(const job::Job& job);

// What a worker of speed 1 takes for a batch.
struct ComputeCost {
  absl::Duration per_sample;
  absl::Duration per_step;
  absl::Duration per_test_sample;
};

}  // namespace slackline::simulator
