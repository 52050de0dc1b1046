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
#include "common/kill_point.h"
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

void WriteDown(Controller& controller, const RunRecord& record) {
  const absl::Time wall_time = absl::Now();
  absl::Status status;
  for (const std::string& event : controller.TakeEvents()) {
    status.Update(record.folder.WriteEvent(event, wall_time));
    if (record.history != nullptr) record.history->AddEvent(event, wall_time);
  }
  for (const Report& report : controller.TakeReports()) {
    status.Update(record.folder.Write(report, wall_time));
    record.metrics.Publish(report);
    if (record.history != nullptr) record.history->Add(report);
  }
  Complain(status);
}

// Gives checkpoints whose files are all written their names, and removes what is too old or was not finished.
class CheckpointFolder {
 public:
  CheckpointFolder(Controller& controller, const RunRecord& record) : controller_(controller), record_(record) {}

  void Look() {
    const std::optional<checkpoint::Manifest> manifest = controller_.CheckpointToCommit();
    if (manifest) Commit(*manifest);
    const uint64_t failed = controller_.CheckpointThatFailed();
    if (failed == tidied_) return;
    tidied_ = failed;
    Complain(checkpoint::PrunePartial(record_.checkpoints, failed));
  }

 private:
  void Commit(checkpoint::Manifest manifest) {
    manifest.set_created_unix_us(absl::ToUnixMicros(absl::Now()));
    const uint64_t number = manifest.number();
    SLACKLINE_KILL_POINT("commit");
    const absl::StatusOr<std::filesystem::path> folder = checkpoint::Commit(record_.checkpoints, std::move(manifest));
    if (!folder.ok()) {
      log::Error("checkpoint ", number, " is not whole: ", std::string(folder.status().message()));
      return controller_.CheckpointCommitted(folder.status());
    }
    controller_.CheckpointCommitted(folder->string());
    Complain(checkpoint::PrunePartial(record_.checkpoints, number));
    // A run that fails again and again must not replace what was good by what it fails with.
    if (controller_.state() == wire::JOB_FAILED) return;
    Complain(checkpoint::Prune(record_.checkpoints, record_.checkpoints_kept, controller_.GoesOnFrom()).status());
  }
  static void Complain(const absl::Status& status) {
    if (!status.ok()) log::Error("old checkpoints stay: ", std::string(status.message()));
  }

  Controller& controller_;
  const RunRecord& record_;
  uint64_t tidied_ = 0;
};

void TakeSignal(Controller& controller, int signal) {
  if (signal != SIGUSR1) {
    return controller.Dismiss(absl::StrCat("the scheduler got ", signal == SIGINT ? "SIGINT" : "SIGTERM"));
  }
  wire::CheckpointRequest request;
  request.set_reason("SIGUSR1");
  const absl::StatusOr<wire::CheckpointReply> begun = controller.Checkpoint(request);
  if (!begun.ok()) log::Error("no checkpoint on SIGUSR1: ", std::string(begun.status().message()));
}

// Shows the members to those who watch the run.
class Onlookers {
 public:
  Onlookers(Controller& controller, const RunRecord& record) : controller_(controller), record_(record) {}

  void Look() {
    const absl::Time now = time_.Now();
    if (now < due_) return;
    due_ = now + kEvery;
    record_.metrics.Publish(controller_.Members());
    record_.metrics.run_disk.Look(record_.path);
    record_.metrics.checkpoint_disk.Look(record_.checkpoints);
    if (record_.targets != nullptr) Note(record_.targets->Write(controller_.ScrapeTargets()));
  }

  void End() {
    record_.metrics.Publish(controller_.Members());
    if (record_.targets != nullptr) Note(record_.targets->Clear());
  }

 private:
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  // Once is enough.
  void Note(const absl::Status& status) {
    if (!status.ok() && failed_.ok()) log::Error("Prometheus does not find this run: ", std::string(status.message()));
    failed_ = status;
  }

  Controller& controller_;
  const RunRecord& record_;
  const SteadyTime time_;
  absl::Time due_ = absl::InfinitePast();
  absl::Status failed_;
};

// Saves the controller's state now and then.
class Saver {
 public:
  Saver(Controller& controller, StateStore* store) : controller_(controller), store_(store) {}

  // `news`: something has happened that others build on (a member, the beginning, a checkpoint).
  // Returns whether it was tried.
  bool Save(bool news) {
    const absl::Time begin = time_.Now();
    if (store_ == nullptr || begin < (news ? news_due_ : due_)) return false;
    const state::Scheduler state = controller_.Save(absl::Now());
    const absl::Status saved = store_->Save(state);
    if (saved.ok()) controller_.StateKept(state);
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
  Controller& controller_;
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
  Saver saver(controller, record.store);
  Onlookers onlookers(controller, record);
  CheckpointFolder checkpoints(controller, record);
  bool begun = false;
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
    if (!begun && controller.state() == wire::JOB_TRAINING) {
      begun = true;
      if (record.on_begin != nullptr) Complain(record.on_begin());
    }
    news = controller.HasEvents() || news;
    if (saver.Save(news)) news = false;
    WriteDown(controller, record);
    onlookers.Look();
    // What hangs or dies over this has at least said all that was before.
    checkpoints.Look();
    if (!summarised && HasEnded(controller)) {
      summarised = true;
      Complain(folder.WriteSummary(controller.Summary()));
    }
  }
  WriteDown(controller, record);
  onlookers.End();
  // Again, with the last words of the workers.
  Complain(folder.WriteSummary(controller.Summary()));
}

}  // namespace slackline::scheduler
