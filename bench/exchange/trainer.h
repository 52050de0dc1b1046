// A worker's side of the measurement: a process that holds a model and a gradient and exchanges them on order.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "bench/exchange/cluster.h"
#include "bench/exchange/options.h"
#include "bench/support/process.h"

namespace slackline::bench {

// An order to a trainer: repeat rounds for `seconds`, at least one round.
struct Order {
  // kLayers and kAtOnce are steps after a backward pass: gradients leave during it (kLayers) or after it (kAtOnce).
  // kPush is only for the worker of --pusher-beside, and is the only order that this worker accepts.
  enum class Kind : uint32_t { kStep, kLayers, kAtOnce, kPull, kPush };
  Kind kind = Kind::kStep;
  double seconds = 0;
};

// The trainer's answer to an order.
struct Outcome {
  // Number of rounds. A pull counts as the fraction of shards that had changed, since unchanged shards send nothing.
  double rounds = 0;
  double seconds = 0;
  double p50_us = 0;
  double p99_us = 0;

  double per_s() const { return rounds / seconds; }
};

// A model and a gradient that several processes share. Empty if each process has its own.
struct TrainerMemory {
  absl::Span<float> parameters;
  absl::Span<float> gradient;
};

// Allocates the shared memory, which lives as long as the program. Call it before the processes are forked.
TrainerMemory ShareTrainerMemory(uint64_t elements);

// Thread-safety: none.
// Forks, so create it before any gRPC in this process.
class Trainer {
 public:
  // Connects to the servers, gives them initial weights and pulls once.
  Trainer(const ExchangeBenchOptions& options, const Cluster& cluster, uint32_t number, const TrainerMemory& shared);

  // Waits until the trainer is ready. Call it once, before the first order.
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
