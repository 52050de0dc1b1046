// A whole cluster in virtual time: the very cores that the programs run (membership, consistency engine, worker
// session) joined by a network that delays, breaks and forgets, on machines that die, pause and are restored.
//
// One seed decides everything. While it runs, a model of what must be true watches: see Check... in the source.
// A failure names the seed, the virtual time and what was violated.
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
#include "scheduler/membership.h"
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
  // Each worker goes on until its clock has come so far.
  uint64_t clock_target = 10;
  // Faults happen up to this time; afterwards everything must come to its end.
  absl::Duration faults_until = absl::Seconds(4);
  bool break_streams = true;
  bool kill_workers = true;
  bool restore_shards = true;
  bool pause_workers = true;
  ps::Engine::Bugs bugs;
};

struct Outcome {
  // Empty when all held.
  std::string violation;
  uint64_t events = 0;
  // How much of what is interesting happened, summed by the test to show that histories are rich.
  uint64_t applied = 0;
  uint64_t discarded = 0;
  uint64_t late = 0;         // of those discarded
  uint64_t overdue = 0;      // steps of a quorum that was not reached in time
  uint64_t of_the_gone = 0;  // pushes applied that were accepted from a worker that left
  uint64_t notices = 0;      // of whom a pull waits for
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
