// A whole cluster in virtual time: the very cores that the programs run (membership, consistency engine, worker
// session), joined by a network that delays, breaks and forgets, on machines that crash, pause and are restored.
//
// A single seed decides everything. A model of the required properties watches each run: see Check... in the source. A
// failure names the seed, the virtual time and the violation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ps/consistency/engine.h"
#include "scheduler/members/membership.h"
#include "tests/sim/faulty_engine.h"
#include "worker/client/session.h"

namespace slackline::sim {

struct Options {
  uint64_t seed = 1;
  uint32_t shards = 3;
  uint32_t workers = 3;
  ps::Mode mode = ps::Mode::kSsp;
  uint64_t staleness_max = 2;
  uint64_t softsync_n = 1;
  double quorum = 0.75;
  absl::Duration quorum_deadline;
  bool grace = false;
  // Clock that each worker must reach.
  uint64_t clock_target = 10;
  // Time up to which faults happen; afterwards everything must come to its end.
  absl::Duration faults_until = absl::Seconds(4);
  bool break_streams = true;
  bool kill_workers = true;
  bool restore_shards = true;
  bool pause_workers = true;
  Bugs bugs;
};

struct Outcome {
  // Violated property; empty if all held.
  std::string violation;
  uint64_t events = 0;
  // Counts of interesting events, which the test sums to show that histories are rich.
  uint64_t applied = 0;
  uint64_t discarded = 0;
  uint64_t late = 0;         // discarded pushes that were late
  uint64_t overdue = 0;      // steps of a quorum that was not reached in time
  uint64_t graced = 0;       // steps with more pushes than their quorum needs
  uint64_t of_the_gone = 0;  // pushes applied that were accepted from a worker that left
  uint64_t notices = 0;      // messages that name the worker for which a pull waits
  uint64_t repeated_answers = 0;
  uint64_t restores = 0;
  uint64_t lost = 0;
  uint64_t deaths = 0;
  uint64_t joins = 0;
  uint64_t stream_breaks = 0;
};

// Runs one history to its end or to its first violation.
Outcome Simulate(const Options& options);

}  // namespace slackline::sim
