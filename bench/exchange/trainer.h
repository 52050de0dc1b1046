// A worker's side of the measurement: a process that holds a model and a gradient, and exchanges them when it is told
// to.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "bench/exchange/cluster.h"
#include "bench/exchange/options.h"
#include "bench/support/process.h"

namespace slackline::bench {

// What a trainer is told, for as long as `seconds`; one round at least.
struct Order {
  // kLayers and kAtOnce are steps after a backward: gradients leave while it goes on, or when it is over. kPush is for
  // the worker of --pusher-beside alone, and the only order that it knows.
  enum class Kind : uint32_t { kStep, kLayers, kAtOnce, kPull, kPush };
  Kind kind = Kind::kStep;
  double seconds = 0;
};

// What it answers.
struct Outcome {
  // A pull counts by the part of the shards that had changed: the others sent nothing.
  double rounds = 0;
  double seconds = 0;
  double p50_us = 0;
  double p99_us = 0;

  double per_s() const { return rounds / seconds; }
};

// A model and a gradient that several processes share; empty when each is to have its own.
struct TrainerMemory {
  absl::Span<float> parameters;
  absl::Span<float> gradient;
};

// Before the processes are forked. Lives as long as the program.
TrainerMemory ShareTrainerMemory(uint64_t elements);

// Thread-safety: none. Forks: before any gRPC in this process.
class Trainer {
 public:
  // Connects to the servers, gives them initial weights and pulls once.
  Trainer(const ExchangeBenchOptions& options, const Cluster& cluster, uint32_t number, const TrainerMemory& shared);

  // To be called once before the first order.
  void AwaitReady();
  void Give(const Order& order);
  Outcome Await();
  Outcome Do(const Order& order);

  pid_t pid() const { return child_.pid(); }

 private:
  void Fail() const;

  Child child_;
  absl::Duration patience_;
};

}  // namespace slackline::bench
