// Main thread of the scheduler: lets time pass for the controller, writes what it reports, and handles signals.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/checkpoint/folder.h"
#include "scheduler/control/controller.h"
#include "scheduler/record/run_folder.h"
#include "scheduler/record/state_store.h"
#include "scheduler/service/scheduler_metrics.h"
#include "scheduler/service/scrape_targets.h"
#include "scheduler/status/status_history.h"

namespace slackline::scheduler {

// Blocks SIGTERM, SIGINT and SIGUSR1 for this thread and the threads that it starts, so that only RunUntilFinished()
// takes them. Call before the first thread is started.
void BlockStopSignals();

// Outputs of a run while it is in progress.
struct RunRecord {
  RunFolderWriter& folder;
  SchedulerMetrics& metrics;
  // Files for Prometheus. Null: nobody is to find the processes of this run.
  ScrapeTargets* targets = nullptr;
  // Path of the run folder, to measure the disk's free bytes; empty: they are not measured.
  std::string path = {};
  // Store of the scheduler's state. Null: the state is not kept.
  StateStore* store = nullptr;
  // History for the status page; null: nobody wants it.
  StatusHistory* history = nullptr;
  // Folder of the checkpoints, and how many of them stay.
  std::string checkpoints = {};
  checkpoint::Kept checkpoints_kept = {};
  // Called once, when training has begun, before anything of it is written down. May be null.
  std::function<absl::Status()> on_begin = nullptr;
  // Time that the last output of a run waits for room on a full disk.
  absl::Duration room_max = absl::ZeroDuration();
};

// Runs until the job has ended and its members have left, and ticks every `period`. SIGTERM or SIGINT stops the job or,
// if it has ended, the wait for somebody to ask how; a second one makes the function return at once. SIGUSR1 begins a
// checkpoint. Requires: BlockStopSignals() was called.
void RunUntilFinished(Controller& controller, const RunRecord& record, absl::Duration period);

}  // namespace slackline::scheduler
