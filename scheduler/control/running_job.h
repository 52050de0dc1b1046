// RunningJob: all that a scheduler knows of its job, and what follows from that without changing it.
//
// The controller guards it by its lock. JobCourse changes it as members come and go, TickJob() as time demands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/base/event_log.h"
#include "scheduler/base/report.h"
#include "scheduler/base/server_calls.h"
#include "scheduler/checkpoint/checkpoints.h"
#include "scheduler/checkpoint/room_wait.h"
#include "scheduler/members/job_facts.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/name_claims.h"
#include "scheduler/members/spare_server.h"
#include "scheduler/shards/backups.h"
#include "scheduler/shards/moves.h"
#include "scheduler/shards/shard_directory.h"
#include "scheduler/watch/epoch_book.h"
#include "scheduler/watch/evaluations.h"
#include "scheduler/watch/progress.h"
#include "scheduler/watch/stall_watch.h"
#include "scheduler/watch/training_watch.h"
#include "scheduler/work/batch_sizes.h"
#include "scheduler/work/tasks.h"

namespace slackline::scheduler {

struct JobConfig {
  job::Job job;  // resolved
  uint64_t fingerprint = 0;
  JobId id;
  std::string run_folder;
  // Folder for the servers' snapshots; empty: servers keep none, and the death of a server ends the job.
  std::string snapshot_folder = {};
  // Folder for checkpoints; empty: none are made.
  std::string checkpoint_folder = {};
  uint64_t checkpoint_number = 0;  // numbers up to this one are taken
  // True if the state from Controller::Save() is written to disk and Controller::StateKept() is called. The end of the
  // job is then told only once it is kept: otherwise a restarted scheduler would wait for workers that have left.
  bool keeps_state = false;
  Timeouts timeouts = {};
  // URL of the status page; empty if there is none.
  std::string page = {};
  // `after_record` of EventLog: true if Controller::EventsRecorded() is called after each Controller::TakeEvents().
  bool tells_after_record = false;
  bool unwatched = false;  // true if no supervisor polls for the result: the scheduler exits without waiting
};

// State of the job, and the times of its course.
struct JobPhase {
  wire::JobState state = wire::JOB_STARTING;
  std::string reason;
  absl::Time created;
  absl::Time began = absl::InfiniteFuture();    // training began
  absl::Time trained = absl::InfiniteFuture();  // final evaluation began: all is trained
  absl::Time ended = absl::InfiniteFuture();
  absl::Time stopping = absl::InfiniteFuture();  // servers were told to stop
  absl::Duration elapsed_before;                 // time trained before the checkpoint that the run began with
  bool status_seen = false;                      // status asked for since `stopping`
  bool finished = false;
  bool end_kept = false;  // a state with the end would survive the process

  bool Ended() const { return state != wire::JOB_STARTING && state != wire::JOB_TRAINING; }
  // Returns the time since training began, without what came after the end; 0 before it began.
  double ElapsedSeconds(absl::Time now) const {
    return began == absl::InfiniteFuture() ? 0 : absl::ToDoubleSeconds(std::min(now, ended) - began);
  }
};

// Facts about servers beside their membership.
struct ServersSeen {
  // Metrics endpoints of servers and backups, by name.
  std::map<std::string, std::string> metrics;
  // Minor number of the protocol that servers and backups speak, by name.
  std::map<std::string, uint32_t> minors;
  struct VersionRate {
    absl::Time since;
    uint64_t version = 0;
    double per_second = 0;
  };
  std::map<ServerId, VersionRate> version_rates;
  std::map<ServerId, wire::ServerProgress> progress;
  // Servers whose shards have all been on disk.
  std::set<ServerId> durable;
  bool warned_not_durable = false;
  // Servers that died in the middle of training and whose shards are not back yet.
  std::map<ServerId, absl::Time> lost_since;
  std::set<ServerId> stopped;
};

// Facts about workers beside their membership.
struct WorkersSeen {
  explicit WorkersSeen(const Timeouts& timeouts) : claims(timeouts) {}

  std::map<WorkerId, WorkerOrigin> origins;
  NameClaims claims;
  std::set<Holder> told_to_leave;
  std::map<Holder, absl::Time> work_since;
  std::map<Holder, EvaluationSummary> measured;  // standing when an evaluation was handed out
  std::optional<absl::Time> deserted_since;
  uint64_t deaths = 0;
  // Reasons of processes that ended before they registered, by name, for the message when the start fails.
  std::map<std::string, std::string> early_exits;
};

// Thread-safety: none.
// Ownership:     borrows all that the constructor takes.
struct RunningJob {
  RunningJob(const JobConfig& config, const TimeSource& time, ServerCalls& calls, ServerObserver& observer,
             Moves::Owner& owner);

  bool Replicated() const { return HasBackups(config.job); }
  JobFacts Facts() const { return {time.Now(), phase.state, exit_audience}; }
  // Server processes without shards of their own: backups, or those that wait for shards.
  SpareServers& Spares() { return Replicated() ? backups.all() : moves.joining(); }
  const SpareServers& Spares() const { return Replicated() ? backups.all() : moves.joining(); }
  // True once the job's end is durable, or can no longer be made durable: others may know of it.
  bool Parting(absl::Time now) const;
  bool IsSpare(ServerRef server) const;
  // Returns "worker w-2", or what else Called() makes of the name.
  std::string NameOf(WorkerId worker) const;
  bool Trains(const Membership::Worker& worker) const;
  // True once all shards are seeded. Until then each live worker sends initial weights: a death leaves nobody waiting.
  bool AllSeeded() const;
  absl::Status AllServersThere() const;
  // Returns the workers that must be fenced before others get their work.
  std::vector<std::pair<WorkerId, Incarnation>> Holders() const;
  // True if the server's shards are on disk and training can wait for the server.
  bool MayComeBack(ServerId server) const;
  absl::Duration ServerReturn() const { return absl::Seconds(config.job.durability().server_return_s()); }
  // Answers as Controller::StoppedUnsaved() says.
  bool StoppedUnsaved() const;
  // Returns the samples trained, of all epochs; runs backwards only for ranges that are given out again.
  uint64_t SamplesDone() const;
  uint32_t EpochsTrained() const;
  uint32_t EpochInProgress() const;
  // Returns the time until all is trained, at the speed of the latest minutes; nullopt if it cannot be told.
  std::optional<double> SecondsLeft(absl::Time now) const;
  // Returns the figures of an evaluation that begins now.
  EvaluationSummary StandingAt(absl::Time now) const;
  // Returns the servers' optimizer with its settings, for people; empty until scripts have said what it is.
  std::string Optimizer() const;
  // Returns whether shards can be placed and installed: all is known that servers must know of the model.
  bool ModelKnown() const { return first_worker.has_value() && !optimizer_awaited; }
  // Returns the number of samples in each batch of the worker's next range.
  uint32_t BatchSizeFor(WorkerId worker) const;
  // Returns the number of images that a range has for each whole push of batches of this size.
  uint32_t RangeUnit(uint32_t batch_size) const;
  // True unless a worker that could do its work is known to be much faster.
  bool Swift(WorkerId worker) const;

  const JobConfig& config;
  const TimeSource& time;
  ServerCalls& calls;

  JobPhase phase;
  Membership membership;
  ShardDirectory shards;
  ServersSeen servers;
  WorkersSeen workers;

  // The model: known from the first worker on; placed once the servers are there.
  std::optional<wire::RegisterWorkerRequest> first_worker;
  // True until the first worker of a run that continues has said which settings of the optimizer scripts give.
  bool optimizer_awaited = false;
  // The work; absent until the first worker has said how much data there is.
  std::optional<Tasks> tasks;
  StallWatch stalls;
  RoomWait room;
  // Speeds of the workers, and their batch sizes with training.batch balance.
  BatchSizes batch_sizes;
  TrainingWatch watch;
  // Folder of the checkpoint that the run began with; empty for none.
  std::string goes_on_from;
  uint64_t data_kept = 0;  // fingerprint of its data; 0: not checked

  // Figures and events for people.
  Progress progress;
  EventLog events;
  Checkpoints checkpoints;
  Backups backups;
  Moves moves;
  Evaluations evaluations;
  EpochBook epoch_book;
  std::vector<Report> reports;
  absl::Time last_report;
  absl::Time last_tick = absl::InfiniteFuture();
  absl::Time epoch_told = absl::InfinitePast();
  Audience exit_audience = Audience::kPeople;  // audience of deaths that ReportExit() reports
};

}  // namespace slackline::scheduler
