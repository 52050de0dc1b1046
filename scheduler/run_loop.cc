#include "scheduler/run_loop.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/folder.h"
#include "common/clock.h"
#include "common/logging.h"

namespace slackline::scheduler {
namespace {

sigset_t OurSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

// Waits up to `period` for a signal. Returns 0 for none.
int WaitForSignal(absl::Duration period) {
  const sigset_t signals = OurSignals();
  const timespec timeout = absl::ToTimespec(period);
  const int signal = sigtimedwait(&signals, nullptr, &timeout);
  return signal > 0 ? signal : 0;
}

bool HasEnded(const Controller& controller) {
  const wire::JobState state = controller.state();
  return state != wire::JOB_STARTING && state != wire::JOB_TRAINING;
}

// A full disk costs the curves, not the training.
void Complain(const absl::Status& status) {
  if (!status.ok()) log::Error("the run folder is incomplete: ", std::string(status.message()));
}

void WriteDown(Controller& controller, RunFolder& folder, SchedulerMetrics& metrics) {
  const absl::Time wall_time = absl::Now();
  absl::Status status;
  for (const std::string& event : controller.TakeEvents()) status.Update(folder.WriteEvent(event, wall_time));
  for (const Report& report : controller.TakeReports()) {
    status.Update(folder.Write(report, wall_time));
    metrics.Publish(report);
  }
  Complain(status);
}

// Gives a checkpoint whose files are all written its name, and removes those that are too old.
void CommitCheckpoint(Controller& controller, const RunRecord& record) {
  std::optional<checkpoint::Manifest> manifest = controller.CheckpointToCommit();
  if (!manifest) return;
  manifest->set_created_unix_us(absl::ToUnixMicros(absl::Now()));
  const uint64_t number = manifest->number();
  const absl::StatusOr<std::filesystem::path> folder = checkpoint::Commit(record.checkpoints, *std::move(manifest));
  if (folder.ok()) {
    controller.CheckpointCommitted(folder->string());
    const auto pruned = checkpoint::Prune(record.checkpoints, record.checkpoints_kept, number);
    if (!pruned.ok()) log::Error("old checkpoints stay: ", std::string(pruned.status().message()));
  } else {
    log::Error("checkpoint ", number, " is not whole: ", std::string(folder.status().message()));
    controller.CheckpointCommitted(folder.status());
  }
}

void TakeSignal(Controller& controller, int signal) {
  if (signal != SIGUSR1) {
    return controller.Dismiss(absl::StrCat("the scheduler got ", signal == SIGINT ? "SIGINT" : "SIGTERM"));
  }
  wire::CheckpointRequest request;
  request.set_reason("SIGUSR1");
  const absl::StatusOr<wire::CheckpointReply> begun = controller.Checkpoint(request);
  if (!begun.ok()) log::Error("no checkpoint on SIGUSR1: ", std::string(begun.status().message()));
}

// Saves the controller's state now and then.
class Saver {
 public:
  Saver(const Controller& controller, StateStore* store) : controller_(controller), store_(store) {}

  // `news`: something has happened that others build on (a member, the beginning, a checkpoint).
  // Returns whether it was tried.
  bool Save(bool news) {
    const absl::Time begin = time_.Now();
    if (store_ == nullptr || begin < (news ? news_due_ : due_)) return false;
    const absl::Status saved = store_->Save(controller_.Save(absl::Now()));
    // Once is enough: a disk that is full stays so for long.
    if (!saved.ok() && failed_.ok()) log::Error("the scheduler's state is not saved: ", std::string(saved.message()));
    if (saved.ok() && !failed_.ok()) log::Info("the scheduler's state is saved again");
    failed_ = saved;
    // A twentieth of the time at most, or half of it while there are news.
    const absl::Time end = time_.Now();
    due_ = end + 20 * (end - begin);
    news_due_ = end + (end - begin);
    return true;
  }

 private:
  const Controller& controller_;
  StateStore* const store_;
  const SteadyTime time_;
  absl::Time due_ = absl::InfinitePast();
  absl::Time news_due_ = absl::InfinitePast();
  absl::Status failed_;
};

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = OurSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void RunUntilFinished(Controller& controller, const RunRecord& record, absl::Duration period) {
  RunFolder& folder = record.folder;
  SchedulerMetrics& metrics = record.metrics;
  Saver saver(controller, record.store);
  bool asked = false;
  bool summarised = false;
  bool news = false;
  while (!controller.finished()) {
    if (const int signal = WaitForSignal(period)) {
      if (asked && signal != SIGUSR1) break;
      asked = asked || signal != SIGUSR1;
      TakeSignal(controller, signal);
    }
    controller.Tick();
    CommitCheckpoint(controller, record);
    news = controller.HasEvents() || news;
    if (saver.Save(news)) news = false;
    WriteDown(controller, folder, metrics);
    if (!summarised && HasEnded(controller)) {
      summarised = true;
      Complain(folder.WriteSummary(controller.Summary()));
    }
  }
  WriteDown(controller, folder, metrics);
  // Again, with the last words of the workers.
  Complain(folder.WriteSummary(controller.Summary()));
}

}  // namespace slackline::scheduler
