#include "cli/run/run_end.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/base/complain.h"
#include "cli/base/shell_word.h"
#include "cli/base/silence.h"
#include "cli/run/progress.h"
#include "cli/run/report.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_lock.h"
#include "cli/run/script.h"
#include "cli/run/slurm_queue.h"
#include "common/checkpoint/folder.h"
#include "common/job/consistency_modes.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"
#include "scheduler/record/line_file.h"
#include "scheduler/status/status_alerts.h"
#include "scheduler/status/status_history.h"
#include "scheduler/status/status_limits.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kEventsToShow = 5;

// The end that the scheduler has written down, unless the run has gone on since.
void TakeEnd(wire::JobStatus& status) {
  for (const wire::EventView& event : status.events()) {
    absl::string_view text = event.text();
    if (absl::StartsWith(text, "the scheduler goes on ") || absl::StartsWith(text, "goes on from checkpoint ")) {
      status.clear_state();
      status.clear_reason();
      status.clear_ended_unix_ms();
    }
    if (!absl::ConsumePrefix(&text, "the job is ")) continue;
    const std::string state(text.substr(0, text.find(": ")));
    if (state != "done" && state != "failed" && state != "stopped") continue;
    status.set_state(state);
    status.set_reason(std::string(absl::StripPrefix(text.substr(state.size()), ": ")));
    status.set_ended_unix_ms(event.unix_ms());
  }
}

// Of files that grow as long as a run lives; in milliseconds since 1970, 0 where there are none.
int64_t LastSignOfLife(const fs::path& run) {
  int64_t last = 0;
  for (const char* const name : {"metrics.csv", "events.log"}) {
    struct ::stat file {};
    if (::stat((run / name).c_str(), &file) == 0) last = std::max<int64_t>(last, file.st_mtim.tv_sec * 1000);
  }
  return last;
}

// Of reports that were written until the end.
void TakeProgress(wire::JobStatus& status) {
  wire::JobProgress& progress = *status.mutable_progress();
  const wire::JobCurve& curve = status.curve();
  if (const int last = curve.time_s_size() - 1; last >= 0) {
    progress.set_elapsed_s(curve.time_s(last));
    progress.set_epoch(static_cast<uint32_t>(std::max(0.0, curve.epoch(last))));
    if (std::isfinite(curve.loss(last))) progress.set_loss(curve.loss(last));
    if (std::isfinite(curve.train_accuracy(last))) progress.set_train_accuracy(curve.train_accuracy(last));
  }
  if (const int last = curve.test_accuracy_size() - 1; last >= 0) {
    progress.set_test_accuracy(curve.test_accuracy(last));
  }
}

void TakeEnergy(const nlohmann::json& energy, wire::JobStatus& status) {
  if (!energy.is_object()) return;
  const auto number = [&](const char* name) {
    const nlohmann::json value = energy.value(name, nlohmann::json());
    return value.is_number() ? value.get<double>() : 0;
  };
  wire::EnergyView& view = *status.mutable_energy();
  view.set_total_joules(number("joules"));
  view.set_edp_joule_seconds(number("edp"));
  view.mutable_joules()->set_training(number("training"));
  view.mutable_joules()->set_validation(number("validation"));
  view.mutable_joules()->set_test(number("test"));
  view.mutable_joules()->set_other(number("other"));
}

void TakeMetric(const nlohmann::json& metric, wire::JobProgress& progress) {
  const auto field = [&](const char* name) { return metric.value(name, nlohmann::json()); };
  if (!metric.is_object() || !field("name").is_string()) return;
  wire::JobMetric& out = *progress.mutable_metric();
  out.set_name(field("name").get<std::string>());
  out.set_lower_is_better(field("better") == "lower");
  if (field("last").is_number()) out.set_last(field("last").get<double>());
  if (field("best").is_number()) out.set_best(field("best").get<double>());
}

// Returns summary.json, or an empty object if it does not tell of an end in this state: a run that goes on from an
// earlier point may have an older summary.
nlohmann::json SummaryOf(const fs::path& run, const std::string& state) {
  nlohmann::json summary = ReadJson(run / "summary.json");
  const bool of_end = summary.is_object() && summary.value("state", nlohmann::json()) == state;
  return of_end ? summary : nlohmann::json::object();
}

void TakeSummary(const fs::path& run, wire::JobStatus& status) {
  const nlohmann::json summary = SummaryOf(run, status.state());
  const auto number = [&](const char* name) { return summary.value(name, nlohmann::json()); };
  wire::JobProgress& progress = *status.mutable_progress();
  if (number("samples").is_number()) progress.set_samples_done(number("samples").get<uint64_t>());
  if (number("steps").is_number()) progress.set_steps(number("steps").get<uint64_t>());
  if (number("loss").is_number()) progress.set_loss(number("loss").get<double>());
  if (number("test_accuracy").is_number()) progress.set_test_accuracy(number("test_accuracy").get<double>());
  if (number("test_metric").is_string()) progress.set_test_metric(number("test_metric").get<std::string>());
  if (number("test_loss").is_number()) progress.set_test_loss(number("test_loss").get<double>());
  TakeMetric(number("metric"), progress);
  TakeEnergy(number("energy"), status);
}

void TakeCheckpoints(const fs::path& folder, wire::JobStatus& status) {
  const absl::Time now = absl::FromUnixMillis(status.unix_ms());
  wire::JobCheckpoints& checkpoints = *status.mutable_checkpoints();
  for (const checkpoint::Found& found : checkpoint::List(folder)) {
    const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(found.path);
    if (!manifest.ok()) continue;
    if (checkpoints.kept_size() >= static_cast<int>(scheduler::kCheckpointsShown)) break;
    wire::CheckpointView& view = *checkpoints.add_kept();
    view.set_number(found.number);
    view.set_age_s(std::max(0.0, absl::ToDoubleSeconds(now - absl::FromUnixMicros(manifest->created_unix_us()))));
    for (const wire::CheckpointFile& file : manifest->files()) view.set_bytes(view.bytes() + file.bytes());
    if (checkpoints.whole() != 0) continue;
    checkpoints.set_whole(found.number);
    checkpoints.set_folder(found.path.string());
    checkpoints.set_age_s(view.age_s());
    checkpoints.set_epochs(manifest->scheduler().tasks().ranges().epochs_done());
  }
  std::reverse(checkpoints.mutable_kept()->begin(), checkpoints.mutable_kept()->end());
}

// Returns the epoch of the last row of epochs.csv, which has a row for each complete epoch; 0 if the file does not
// exist.
std::optional<uint32_t> EpochsDone(const fs::path& run) {
  const fs::path file = run / "epochs.csv";
  std::error_code error;
  std::ifstream in(file);
  if (!in) return fs::exists(file, error) || error ? std::nullopt : std::optional<uint32_t>(0);
  uint32_t done = 0, epoch = 0;
  for (std::string line; std::getline(in, line);) {
    if (absl::SimpleAtoi(line.substr(0, line.find(',')), &epoch)) done = epoch;
  }
  return done;
}

// Returns the job of the run or, until the run begins, the job that was submitted.
absl::StatusOr<job::Job> JobOf(const fs::path& run) {
  std::error_code error;
  const fs::path of_run = run / "job.yaml";
  return ReadJobFile(fs::exists(of_run, error) ? of_run : run / "submit" / "job.yaml", {});
}

// Where no end was written: who is to look after it, and whether anybody does.
void TakeCare(const fs::path& run, const job::Job& job, wire::JobStatus& status) {
  std::error_code error;
  const std::string who = WhoRuns(run);
  const std::string before = WhoRan(run);
  status.clear_ended_unix_ms();
  if (!who.empty()) {
    status.set_state(kAway);
    status.set_reason(absl::StrCat(who, " supervises the run, and restarts its scheduler after a crash or after ",
                                   absl::FormatDuration(SchedulerSilenceMax(job)), " of silence"));
  } else if (before.empty() && fs::is_directory(run / "scheduler", error)) {
    status.set_state(kAway);
    status.set_reason("the run did not end; it was started by hand, so start its scheduler again");
  } else {
    status.set_state(kLost);
    status.set_reason(before.empty() ? "the run did not end, and its scheduler saved no state to continue from"
                                     : absl::StrCat("the run did not end, and its supervisor is gone (", before, ")"));
    if (const int64_t last = LastSignOfLife(run); last > 0) status.set_ended_unix_ms(last);
  }
}

// What SLURM will do, or has just begun to do, is newer than what the run has written.
void TakeQueued(const QueuedJob& job, wire::JobStatus& status) {
  if (!job.pending() && status.state() == kAway) return;
  status.set_state(job.pending() ? kPending : kAway);
  status.set_reason(job.Describe());
  status.clear_ended_unix_ms();
}

// A simulation begins at the epoch, in virtual time.
bool IsVirtual(int64_t unix_ms) { return absl::FromUnixMillis(unix_ms) < absl::UnixEpoch() + absl::Hours(24 * 365); }

// Returns SERVICE/NUMBER if the run folder is that of a job of a service, which is the only one to begin it again; else
// an empty text.
std::string JobOfRun(const fs::path& run) {
  const fs::path folder = run.parent_path(), jobs = folder.parent_path(), service = jobs.parent_path();
  uint64_t id = 0;
  std::error_code error;
  const bool named =
      run.filename() == "run" && jobs.filename() == "jobs" && absl::SimpleAtoi(folder.filename().string(), &id);
  return named && fs::is_directory(service / "book", error) ? (service / absl::StrCat(id)).string() : "";
}

std::string GoOn(const fs::path& run, const job::Job* job, const wire::JobStatus& status) {
  std::error_code error;
  if (!WhoRuns(run).empty() || status.state() == kPending) return "";
  const bool saved = fs::is_directory(run / "scheduler", error);
  const bool by_hand = WhoRan(run).empty();
  const std::string folder = ShellWord(run.string()), job_file = ShellWord((run / "job.yaml").string());
  if (status.has_ended_unix_ms() && IsVirtual(status.ended_unix_ms())) {
    return absl::StrCat("slackline simulate ", job_file);
  }
  const bool no_checkpoint = status.checkpoints().whole() == 0;
  // Early stopping leaves epochs to train.
  const bool needs_epochs =
      status.state() == "done" && job != nullptr && status.checkpoints().epochs() >= job->training().epochs();
  const std::string more =
      needs_epochs ? absl::StrCat(" --set training.epochs=", job->training().epochs() + 1) : std::string();
  if (const std::string number = JobOfRun(run); !number.empty()) {
    return absl::StrCat("slackline resume ", ShellWord(number), more);
  }
  if (status.state() == kAway || ((by_hand || no_checkpoint) && saved && status.state() == "stopped")) {
    return absl::StrCat("slackline-scheduler ", job_file, " --run-folder ", folder, " --resume");
  }
  if (no_checkpoint) {
    std::vector<std::string> script = KeptScript(run);
    if (ScriptIn(script).empty()) script.clear();
    if (fs::is_directory(run / "submit", error)) {
      return absl::StrCat("slackline slurm submit ", ShellWord((run / "submit" / "job.yaml").string()),
                          script.empty() ? "" : absl::StrCat(" --script ", ShellWord(ScriptIn(script))));
    }
    return StartTextOf("slackline", script, (run / "job.yaml").string(), {}).Whole();
  }
  if (needs_epochs) return absl::StrCat("slackline resume ", folder, more);
  if (fs::is_directory(run / "submit", error)) {
    return absl::StrCat("slackline slurm submit --resume --run-folder ", folder);
  }
  return absl::StrCat("slackline resume ", folder);
}

std::string TimeText(int64_t unix_ms) {
  if (IsVirtual(unix_ms)) return absl::StrFormat("%.3f s of virtual time", static_cast<double>(unix_ms) / 1000);
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms), absl::LocalTimeZone());
}

std::string RenderLast(const wire::JobStatus& status) {
  const wire::JobProgress& progress = status.progress();
  // Of how far it was only the checkpoint is left, where the run folder was removed.
  if (progress.epoch() == 0) return status.checkpoints().whole() > 0 ? "" : "nothing was trained\n";
  std::string out =
      absl::StrFormat("epoch %d/%d, %s trained", progress.epoch(), progress.epochs(), RenderTime(progress.elapsed_s()));
  if (progress.has_loss()) absl::StrAppendFormat(&out, ", loss %.3f", progress.loss());
  if (progress.has_train_accuracy()) absl::StrAppendFormat(&out, ", accuracy %.1f %%", 100 * progress.train_accuracy());
  out += "\n";
  return out + RenderTest(progress);
}

std::string RenderLastCheckpoint(const wire::JobStatus& status) {
  const wire::JobCheckpoints& checkpoints = status.checkpoints();
  if (checkpoints.whole() == 0) return "there is no checkpoint\n";
  const int64_t made = status.unix_ms() - static_cast<int64_t>(1000 * checkpoints.age_s());
  return absl::StrFormat("last checkpoint %d, made %s, %d of %d epochs done\n", checkpoints.whole(), TimeText(made),
                         checkpoints.epochs(), status.progress().epochs());
}

std::string RenderGoOn(const wire::JobStatus& status) {
  if (status.go_on().empty()) return "";
  const absl::string_view command = status.go_on();
  const bool anew = absl::StartsWith(command, "slackline train ") || absl::StartsWith(command, "slackline launch ") ||
                    absl::StartsWith(command, "slackline simulate ");
  const char* const what = anew ? "to start again" : status.state() == "done" ? "to train longer" : "to continue";
  return absl::StrCat(what, ": ", status.go_on(), "\n");
}

}  // namespace

absl::StatusOr<wire::JobStatus> ReadEnd(const fs::path& run, bool ask_slurm) {
  std::error_code error;
  const std::optional<QueuedJob> queued = ask_slurm ? FindInQueue(run) : std::nullopt;
  if (!queued && !fs::exists(run / "job.yaml", error) && !fs::exists(run / "events.log", error)) {
    return absl::NotFoundError(
        absl::StrCat("found no run in ", run.string(), " (job.yaml); allowed is the folder of a run, or HOST:PORT"));
  }
  const absl::StatusOr<job::Job> job = JobOf(run);
  wire::JobStatus status;
  status.set_run_folder(fs::absolute(run).lexically_normal().string());
  status.set_unix_ms(absl::ToUnixMillis(absl::Now()));
  scheduler::StatusHistory history;
  history.Load(run);
  history.Fill(status);
  TakeEnd(status);
  // Whoever goes on with a run removes the address first of all.
  const bool begins = !WhoRuns(run).empty() && !fs::exists(RunFolder::AddressFile(run), error);
  const bool ended = !status.state().empty() && !begins;
  if (!ended) TakeCare(run, job.ok() ? *job : job::Job(), status);
  TakeProgress(status);
  if (job.ok()) {
    status.mutable_progress()->set_test_metric(std::string(FindsObjects(*job) ? kMapMetric : kAccuracyMetric));
  }
  if (ended) TakeSummary(run, status);
  if (queued && !queued->ends()) TakeQueued(*queued, status);
  if (job.ok()) {
    status.set_name(job->name());
    status.mutable_progress()->set_epochs(job->training().epochs());
  }
  TakeCheckpoints(checkpoint::FolderOfRun(job.ok() ? job->checkpoint().folder() : "", run), status);
  status.set_go_on(GoOn(run, job.ok() ? &*job : nullptr, status));
  scheduler::AddAlerts(status);
  return status;
}

RunFigures ReadFigures(const fs::path& run, const wire::JobStatus& end) {
  RunFigures figures;
  const nlohmann::json summary = SummaryOf(run, end.state());
  const auto count = [&](const char* name) {
    const nlohmann::json value = summary.value(name, nlohmann::json());
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
    return fits ? value.get<uint32_t>() : std::optional<uint32_t>();
  };
  for (const ModeFacts& mode : AllModes()) {
    if (summary.value("mode", nlohmann::json()) == std::string(mode.name)) figures.mode = std::string(mode.name);
  }
  figures.workers = count("workers");
  figures.servers = count("servers");
  figures.epochs = count("epochs");
  figures.epochs_done = count("epochs_done");
  if (!figures.epochs_done) figures.epochs_done = EpochsDone(run);
  if (const absl::StatusOr<job::Job> job = JobOf(run); job.ok()) {
    figures.mode = std::string(FactsOf(job->consistency()).name);
    figures.workers = job->cluster().workers();
    figures.servers = job->cluster().servers();
    figures.epochs = job->training().epochs();
  }
  const nlohmann::json best = summary.value("best_test_accuracy", nlohmann::json());
  const auto& measured = end.curve().test_accuracy();
  if (best.is_number()) {
    figures.best_test_accuracy = best.get<double>();
  } else if (!measured.empty()) {
    figures.best_test_accuracy = *std::max_element(measured.begin(), measured.end());
  }
  const bool is_share = figures.best_test_accuracy >= 0.0 && figures.best_test_accuracy <= 1.0;
  if (!is_share) figures.best_test_accuracy.reset();
  return figures;
}

absl::Status RecordEnd(const fs::path& run, const std::string& state, const std::string& reason) {
  scheduler::StatusHistory history;
  history.Load(run);
  wire::JobStatus status;
  history.Fill(status);
  TakeEnd(status);
  if (!status.state().empty()) return absl::OkStatus();
  const auto events = scheduler::LineFile::Open(run / "events.log", /*header=*/"");
  if (!events.ok()) return events.status();
  return (*events)->Add(scheduler::EventLine(absl::StrCat("the job is ", state, ": ", reason), absl::Now()));
}

std::string RenderEnd(const wire::JobStatus& status) {
  const char* const when = status.state() == kLost ? ", last heard of at " : " at ";
  std::string out =
      absl::StrCat("job ", OneLine(status.name()), ": ", status.state(),
                   status.has_ended_unix_ms() ? absl::StrCat(when, TimeText(status.ended_unix_ms())) : "",
                   status.reason().empty() ? "" : absl::StrCat(" (", OneLine(status.reason()), ")"), "\n");
  absl::StrAppend(&out, RenderLast(status), RenderLastCheckpoint(status));
  if (status.progress().epoch() > 0) out += RenderEnergy(status.has_energy() ? &status.energy() : nullptr);
  absl::StrAppend(&out, RenderGoOn(status));
  if (status.events_size() > 0) out += "last events\n";
  for (int i = std::max(0, status.events_size() - kEventsToShow); i < status.events_size(); ++i) {
    absl::StrAppend(&out, "  ", TimeText(status.events(i).unix_ms()), " ", OneLine(status.events(i).text()), "\n");
  }
  return out;
}

absl::Status OrTheEnd(const std::string& target, const absl::Status& failed) {
  std::error_code error;
  if (!fs::is_directory(target, error)) return failed;
  const absl::StatusOr<wire::JobStatus> end = ReadEnd(target);
  // While it lives, or may come back, the scheduler's silence is what there is to say.
  if (!end.ok() || end->state() == kAway || end->state() == kPending) return failed;
  return absl::FailedPreconditionError(absl::StrCat(
      "the run in ", target, " is over: it is ", end->state(), end->reason().empty() ? "" : ": ", end->reason(),
      end->go_on().empty()
          ? ""
          : absl::StrCat("; ", end->state() == "done" ? "to train longer: " : "to continue: ", end->go_on())));
}

int ExitCodeOf(const std::string& state) {
  const bool well = state == "starting" || state == "training" || state == "done" || state == kPending;
  return well ? kExitDone : kExitFailed;
}

}  // namespace slackline::cli
