#include "scheduler/service/run_loop.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log/logging.h"
#include "common/process/held_signals.h"
#include "common/process/kill_point.h"
#include "common/time/clock.h"

namespace slackline::scheduler {
namespace {

sigset_t OurSignals() { return NotIgnored({SIGTERM, SIGINT, SIGUSR1}); }

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

void Complain(const absl::Status& status) {
  if (!status.ok()) log::Error("the run folder is incomplete: ", std::string(status.message()));
}

// Writes down what happens. A full disk holds up the record, not the training.
class Record {
 public:
  Record(Controller& controller, const RunRecord& record) : controller_(controller), record_(record) {}

  // Returns whether there were events.
  bool Write() {
    const absl::Time wall_time = absl::Now();
    absl::Status status = record_.folder.Flush();
    const std::deque<std::string> events = controller_.TakeEvents();
    for (const std::string& event : events) {
      status.Update(record_.folder.WriteEvent(event, wall_time));
      if (record_.history != nullptr) record_.history->AddEvent(event, wall_time);
    }
    kill_point::Passed("events");
    controller_.EventsRecorded();
    for (const Report& report : controller_.TakeReports()) {
      status.Update(record_.folder.Write(report, wall_time));
      record_.metrics.Publish(report);
      if (record_.history != nullptr) record_.history->Add(report);
    }
    status.Update(record_.folder.WritePower(controller_.TakePower()));
    if (record_.folder.power_full() && !std::exchange(power_full_, true)) {
      controller_.AddEvent(absl::StrCat("warning: power.csv has its largest size, ", PowerFile::kBytesMax >> 20,
                                        " MiB: it gets no later samples; a larger power.sample_every_ms makes fewer"));
    }
    Note(status, lines_);
    return !events.empty();
  }

  // Writes the summary again until it is there; now and then where the disk is full.
  void Summarise() {
    const absl::Time now = time_.Now();
    if (summarised_ || now < summary_due_) return;
    summary_due_ = now + kSummaryAgain;
    const absl::Status written = record_.folder.WriteSummary(controller_.Summary());
    summarised_ = !absl::IsResourceExhausted(written);
    Note(written, summary_);
  }

  // All is over: once more, with the last words of the workers. Until it is written, `stopped`, or the time is over.
  void End(const std::function<bool()>& stopped) {
    summarised_ = false;
    summary_due_ = absl::InfinitePast();
    const absl::Time deadline = time_.Now() + record_.room_max;
    while (true) {
      Write();
      Summarise();
      // What else may be wrong does not pass by itself.
      const bool waits = !summarised_ || absl::IsResourceExhausted(lines_);
      if (!waits || time_.Now() >= deadline || stopped()) break;
    }
    Write();
    Complain(summary_);
    Complain(lines_);
  }

 private:
  static constexpr absl::Duration kSummaryAgain = absl::Seconds(1);

  // Once is enough: a disk that is full stays so for long.
  void Note(const absl::Status& status, absl::Status& before) {
    if (!status.ok() && before.ok()) {
      controller_.AddEvent(absl::StrCat("warning: the run folder is incomplete: ", std::string(status.message()),
                                        "; what is missing is written as soon as that is possible"));
    }
    if (status.ok() && !before.ok()) controller_.AddEvent("the run folder is written again");
    before = status;
  }

  Controller& controller_;
  const RunRecord& record_;
  const SteadyTime time_;
  absl::Status lines_;    // of the last attempt to write some
  absl::Status summary_;  // the same
  bool power_full_ = false;
  bool summarised_ = false;
  absl::Time summary_due_ = absl::InfinitePast();
};

// Keeps epochs.csv, which is written as a whole.
class EpochFile {
 public:
  EpochFile(Controller& controller, RunFolderWriter& folder) : controller_(controller), folder_(folder) {}

  // `now`: whatever it costs.
  void Look(bool now) {
    const absl::Time begin = time_.Now();
    if (!now && begin < due_) return;
    std::optional<std::vector<EpochFigures>> epochs = controller_.TakeEpochs();
    if (epochs) unwritten_ = std::move(epochs);
    if (!unwritten_) return;
    const absl::Status status = folder_.WriteEpochs(*unwritten_);
    // Once is enough: a disk that is full stays so for long.
    if (written_.ok()) Complain(status);
    written_ = status;
    if (status.ok()) unwritten_.reset();
    // A twentieth of the time at most.
    const absl::Time end = time_.Now();
    due_ = end + 20 * (end - begin);
  }

 private:
  Controller& controller_;
  RunFolderWriter& folder_;
  const SteadyTime time_;
  std::optional<std::vector<EpochFigures>> unwritten_;
  absl::Status written_;  // of the last attempt
  absl::Time due_ = absl::InfinitePast();
};

// Gives checkpoints whose files are all written their names, and removes what is too old or was not finished.
class CheckpointFolder {
 public:
  CheckpointFolder(Controller& controller, const RunRecord& record) : controller_(controller), record_(record) {}

  void Look() {
    if (CheckpointDuty due = controller_.DueOnDisk(); due.to_commit) Commit(*std::move(due.to_commit));
    const uint64_t failed = controller_.DueOnDisk().failed;
    if (failed != std::exchange(tidied_, failed)) Complain(checkpoint::PrunePartial(record_.checkpoints, failed));
  }

 private:
  void Commit(checkpoint::Manifest manifest) {
    manifest.set_created_unix_us(absl::ToUnixMicros(absl::Now()));
    const uint64_t number = manifest.number();
    kill_point::Passed("commit");
    const absl::StatusOr<std::filesystem::path> folder = checkpoint::Commit(record_.checkpoints, std::move(manifest));
    if (!folder.ok()) {
      // It is tried again every second while the disk is full: saying so once is enough.
      const bool full = absl::IsResourceExhausted(folder.status());
      if (!full || !full_said_) {
        log::Error("checkpoint ", number, " is incomplete: ", std::string(folder.status().message()));
      }
      full_said_ = full;
      return controller_.CheckpointCommitted(folder.status());
    }
    full_said_ = false;
    controller_.CheckpointCommitted(folder->string());
    Complain(checkpoint::PrunePartial(record_.checkpoints, number));
    // A run that fails again and again must not replace what was good by what it fails with.
    if (controller_.state() == wire::JOB_FAILED) return;
    Complain(checkpoint::Prune(record_.checkpoints, record_.checkpoints_kept, controller_.DueOnDisk().goes_on_from)
                 .status());
  }
  static void Complain(const absl::Status& status) {
    if (!status.ok()) log::Error("cannot delete old checkpoints: ", std::string(status.message()));
  }

  Controller& controller_;
  const RunRecord& record_;
  uint64_t tidied_ = 0;
  bool full_said_ = false;
};

void TakeSignal(Controller& controller, int signal) {
  if (signal != SIGUSR1) {
    return controller.Dismiss(absl::StrCat("the scheduler got ", signal == SIGINT ? "SIGINT" : "SIGTERM"));
  }
  wire::CheckpointRequest request;
  request.set_reason("SIGUSR1");
  const absl::StatusOr<wire::CheckpointReply> begun = controller.Checkpoint(request);
  if (!begun.ok())
    log::Error("cannot make the checkpoint that SIGUSR1 asked for: ", std::string(begun.status().message()));
}

// Shows the members to those who watch the run.
class Onlookers {
 public:
  Onlookers(Controller& controller, const RunRecord& record) : controller_(controller), record_(record) {}

  void Look() {
    const absl::Time now = time_.Now();
    if (now < due_) return;
    due_ = now + kEvery;
    const MembersView members = controller_.Members();
    record_.metrics.Publish(members);
    record_.metrics.run_disk.Look(record_.path);
    record_.metrics.checkpoint_disk.Look(record_.checkpoints);
    if (record_.targets != nullptr) Note(record_.targets->Write(members.scrape_targets));
  }

  void End() {
    record_.metrics.Publish(controller_.Members());
    if (record_.targets != nullptr) Note(record_.targets->Clear());
  }

 private:
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  // Once is enough.
  void Note(const absl::Status& status) {
    if (!status.ok() && failed_.ok())
      log::Error("cannot write prometheus/targets.json, so Prometheus does not find this run: ",
                 std::string(status.message()));
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
    if (time_.Now() < (news ? news_due_ : due_)) return false;
    return SaveNow();
  }

  bool SaveNow() {
    if (store_ == nullptr) return false;
    const absl::Time begin = time_.Now();
    const state::Scheduler state = controller_.Save(absl::Now());
    const absl::Status saved = store_->Save(state);
    if (saved.ok()) controller_.StateKept(state);
    // Once is enough: a disk that is full stays so for long.
    if (!saved.ok() && failed_.ok()) log::Error("cannot save the scheduler's state: ", std::string(saved.message()));
    if (saved.ok() && !failed_.ok()) log::Info("the scheduler saves its state again");
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
  Record written(controller, record);
  Saver saver(controller, record.store);
  Onlookers onlookers(controller, record);
  CheckpointFolder checkpoints(controller, record);
  EpochFile epochs(controller, record.folder);
  bool begun = false;
  bool asked = false;
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
    // What is done is said first: a scheduler that dies in between does it again, and says so.
    news = written.Write() || news;
    if (saver.Save(news)) news = false;
    epochs.Look(/*now=*/false);
    onlookers.Look();
    // What hangs or dies over this has at least said all that was before.
    checkpoints.Look();
    if (HasEnded(controller)) written.Summarise();
  }
  // One that is started again must not take the job for one that is being trained.
  saver.SaveNow();
  onlookers.End();
  written.End([&] { return WaitForSignal(period) > 0; });
  epochs.Look(/*now=*/true);
}

}  // namespace slackline::scheduler
