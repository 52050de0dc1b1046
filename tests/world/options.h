// Options of a world, the bugs to plant in it, and its outcome.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace slackline::world {

// Kinds of faults, as bits.
enum Fault : uint32_t {
  kBreakStreams = 1 << 0,
  kSlowLinks = 1 << 1,
  kLoseCalls = 1 << 2,
  kRepeatCalls = 1 << 3,
  kPartitions = 1 << 4,
  kCrashServers = 1 << 5,
  kCrashWorkers = 1 << 6,
  kCrashScheduler = 1 << 7,
  kPause = 1 << 8,
  kDiskFails = 1 << 9,
  kTornSnapshots = 1 << 10,
  kComeAndGo = 1 << 11,
  kChangeServers = 1 << 12,
};
inline constexpr int kFaults = 13;
inline constexpr uint32_t kAllFaults = (1 << kFaults) - 1;

std::string NamesOf(uint32_t faults);

// Way in which a server's shards survive its death; kDrawn: the seed decides.
enum class Keeps { kDrawn, kSnapshots, kBackups };

// Bugs to plant. FaultyTable plants those of messages.
struct Bugs {
  bool take_old_generations = false;  // takes frames of an old shard map
  bool no_dedupe = false;             // forgets pushes whose answers the worker has not received
  bool keep_the_gone = false;         // lets workers that are gone hold back the clock
  bool ignore_lineage = false;        // takes pushes that were computed before a restore
  bool no_fast_forward = false;       // does not advance to the clock that a worker names
  bool drop_accepted = false;         // forgets accepted pushes of a worker that leaves
  bool take_late = false;             // takes late pushes into a step of a quorum
  bool tell_at_once = false;          // gives answers without waiting for the backup (CMakeLists.txt)
  bool no_fencing = false;            // goes on without its backup, and serves for ever (Replication)
  bool no_checksums = false;          // hands out broken data of the database as if it were sound (MemoryDisk)

  friend bool operator==(const Bugs&, const Bugs&) = default;
};

// The bug `tell_at_once` of the world that is played.
extern bool tells_at_once;

struct Options {
  uint64_t seed = 1;
  uint32_t faults = kAllFaults;  // kinds from which the seed draws
  // Duration of the faults, from the moment when all shards are on disk for the first time; afterwards everything must
  // come to its end.
  absl::Duration faults_for = absl::Seconds(8);
  Keeps keeps = Keeps::kDrawn;
  Bugs bugs;
  // True to keep the last events as text.
  bool trace = false;
};

// Counts of interesting events.
struct Counts {
  uint64_t worlds = 0;
  uint64_t replicated = 0;    // worlds with backups
  uint64_t failed_early = 0;  // jobs that failed before their shards were on disk or in a copy
  uint64_t failed_twice = 0;  // jobs that failed when a server and its backup were hit
  uint64_t events = 0;
  uint64_t pushes = 0;
  uint64_t applied = 0;    // sub-pushes
  uint64_t discarded = 0;  // sub-pushes
  uint64_t lost = 0;       // sub-pushes that a worker was told are gone
  uint64_t pulls = 0;
  uint64_t snapshots = 0;
  uint64_t snapshots_failed = 0;
  uint64_t torn = 0;
  uint64_t restores = 0;         // shards
  uint64_t failovers = 0;        // backups that have taken over
  uint64_t failovers_timed = 0;  // failovers while nothing else went wrong
  uint64_t copies = 0;           // copies of servers that were compared at the end
  uint64_t server_crashes = 0;
  uint64_t worker_crashes = 0;
  uint64_t scheduler_crashes = 0;
  uint64_t pauses = 0;
  uint64_t partitions = 0;
  uint64_t slow_links = 0;
  uint64_t streams = 0;
  uint64_t streams_broken = 0;
  uint64_t calls = 0;
  uint64_t calls_lost = 0;
  uint64_t calls_repeated = 0;
  uint64_t rejoins = 0;  // further incarnations of processes
  uint64_t comings = 0;  // workers that came later or left early
  uint64_t servers_added = 0;
  uint64_t servers_drained = 0;  // servers that were told to leave
  uint64_t moves = 0;            // shards
  uint64_t ranges_twice = 0;
  uint64_t virtual_ms = 0;

  void Add(const Counts& other);
  std::string Text() const;
};

struct Outcome {
  // Violated property; empty if all held.
  std::string violation;
  // Description of the world: servers, workers, mode, faults.
  std::string description;
  Counts counts;
  // Last events, if Options::trace is true.
  std::string trace;
};

// Runs one world to its end or to its first violation.
Outcome Play(const Options& options);

// Smallest options, by kinds of fault and their end, with which a world still fails; and the outcome, with a trace.
struct Smallest {
  Options options;
  Outcome outcome;
  uint32_t tried = 0;
};
// Finds the smallest options that still fail. Requires: Play(options) fails.
Smallest Shrink(const Options& options);
// Describes a failure for people: the seed, the violation, the smallest world that shows it, and its last events.
std::string Explain(const Options& options);

}  // namespace slackline::world
