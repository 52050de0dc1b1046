// The scheduler's main thread: lets time pass for the controller, writes what it reports, hears signals.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/checkpoint/folder.h"
#include "scheduler/controller.h"
#include "scheduler/run_folder.h"
#include "scheduler/scheduler_metrics.h"
#include "scheduler/scrape_targets.h"
#include "scheduler/state_store.h"
#include "scheduler/status_history.h"

namespace slackline::scheduler {

// Blocks SIGTERM, SIGINT and SIGUSR1 for this thread and those it starts, so that only RunUntilFinished() takes them.
// Call before the first thread is started.
void BlockStopSignals();

// What a run leaves on disk while it goes on.
struct RunRecord {
  RunFolder& folder;
  SchedulerMetrics& metrics;
  // For Prometheus. Null: nobody is to find the processes of this run.
  ScrapeTargets* targets = nullptr;
  // Where it lies, for the disk's free bytes; empty: they are not looked at.
  std::string path = {};
  // Null: the scheduler's state is not kept.
  StateStore* store = nullptr;
  // For the status page; null: nobody wants it.
  StatusHistory* history = nullptr;
  // Where checkpoints are, and how many stay.
  std::string checkpoints = {};
  checkpoint::Kept checkpoints_kept = {};
  // Called once, when training has begun, before anything of it is written down. May be null.
  std::function<absl::Status()> on_begin = nullptr;
  // How long the last words of a run wait for room on a full disk.
  absl::Duration room_max = absl::ZeroDuration();
};

// Runs until the job has ended and its members have left, ticking every `period`. SIGTERM or SIGINT stops the job, or,
// where it has ended, the waiting for somebody to ask how; a second one returns at once. SIGUSR1 begins a checkpoint.
// Requires BlockStopSignals().
void RunUntilFinished(Controller& controller, const RunRecord& record, absl::Duration period);

}  // namespace slackline::scheduler
