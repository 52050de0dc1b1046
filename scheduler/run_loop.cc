#include "scheduler/run_loop.h"

#include <csignal>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/logging.h"

namespace slackline::scheduler {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Waits up to `period` for a signal to stop. Returns 0 for none.
int WaitForSignal(absl::Duration period) {
  const sigset_t signals = StopSignals();
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

// Saves the controller's state now and then.
class Saver {
 public:
  Saver(const Controller& controller, StateStore* store) : controller_(controller), store_(store) {}

  void Save() {
    const absl::Time begin = time_.Now();
    if (store_ == nullptr || begin < due_) return;
    const absl::Status saved = store_->Save(controller_.Save(absl::Now()));
    // Once is enough: a disk that is full stays so for long.
    if (!saved.ok() && failed_.ok()) log::Error("the scheduler's state is not saved: ", std::string(saved.message()));
    if (saved.ok() && !failed_.ok()) log::Info("the scheduler's state is saved again");
    failed_ = saved;
    // A twentieth of the time at most.
    due_ = time_.Now() + 20 * (time_.Now() - begin);
  }

 private:
  const Controller& controller_;
  StateStore* const store_;
  const SteadyTime time_;
  absl::Time due_ = absl::InfinitePast();
  absl::Status failed_;
};

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void RunUntilFinished(Controller& controller, const RunRecord& record, absl::Duration period) {
  RunFolder& folder = record.folder;
  SchedulerMetrics& metrics = record.metrics;
  Saver saver(controller, record.store);
  bool asked = false;
  bool summarised = false;
  while (!controller.finished()) {
    if (const int signal = WaitForSignal(period)) {
      if (asked) break;
      asked = true;
      controller.Dismiss(absl::StrCat("the scheduler got ", signal == SIGINT ? "SIGINT" : "SIGTERM"));
    }
    controller.Tick();
    saver.Save();
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
