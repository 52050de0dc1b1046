// The simulated machine of each worker.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "job.pb.h"

namespace slackline::simulator {

struct LinkSpeed {
  absl::Duration latency;       // one-way latency
  double bytes_per_second = 0;  // per direction; 0: unlimited
};

struct WorkerPlan {
  std::string name;     // worker-1, ...
  double slowdown = 1;  // factor of its class times that of worker.slowdown
  double jitter = 0;
  absl::Duration pause_every;  // mean; 0: never
  absl::Duration pause;
  bool pause_silent = false;
  job::Poison::Kind poison = job::Poison::NONE;
  absl::Time joins;
  absl::Time leaves = absl::InfiniteFuture();
  absl::Time dies = absl::InfiniteFuture();
  absl::Duration dies_every;  // mean, from a start; 0: never
  absl::Duration returns_after = absl::InfiniteDuration();
  LinkSpeed link;
};

// Returns one plan per worker, in the order of their numbers. A class that asks for more workers than remain gets the
// remaining ones.
std::vector<WorkerPlan> PlanWorkers(const job::Job& job);

// Compute time of a worker with a slowdown of 1.
struct ComputeCost {
  absl::Duration per_sample;
  absl::Duration per_step;
  absl::Duration per_test_sample;
};

}  // namespace slackline::simulator
