#include "scheduler/run_folder.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job_file.h"

namespace slackline::scheduler {
namespace {

constexpr char kHeader[] =
    "time_s,epoch,step,samples,loss,accuracy,test_accuracy,samples_per_second,staleness_mean,staleness_max,slack,"
    "live_workers\n";

std::string Cell(const std::optional<double>& value) { return value ? absl::StrFormat("%.6g", *value) : ""; }

std::string Row(const Report& report) {
  return absl::StrFormat("%.3f,%d,%d,%d,%s,%s,%s,%.1f,%.4g,%d,%d,%d\n", report.time_s, report.epoch, report.step,
                         report.samples, Cell(report.loss), Cell(report.accuracy), Cell(report.test_accuracy),
                         report.samples_per_second, report.staleness_mean, report.staleness_max, report.slack,
                         report.live_workers);
}

Scalars Points(const Report& report) {
  Scalars points = {
      {"progress/epoch", report.epoch},
      {"progress/samples", static_cast<double>(report.samples)},
      {"progress/samples_per_second", report.samples_per_second},
      {"asynchrony/staleness_mean", report.staleness_mean},
      {"asynchrony/staleness_max", static_cast<double>(report.staleness_max)},
      {"asynchrony/slack", static_cast<double>(report.slack)},
      {"train/gradient_norm_max", report.gradient_norm_max},
      {"members/live_workers", static_cast<double>(report.live_workers)},
  };
  if (report.staleness_bound) {
    points.emplace_back("asynchrony/staleness_bound", static_cast<double>(*report.staleness_bound));
  }
  const auto add = [&](const char* tag, const std::optional<double>& value) {
    if (value) points.emplace_back(tag, *value);
  };
  add("train/loss", report.loss);
  add("train/accuracy", report.accuracy);
  add("test/loss", report.test_loss);
  add("test/accuracy", report.test_accuracy);
  return points;
}

absl::Status CheckWritten(const std::ofstream& out, const std::string& path) {
  return out ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace

std::string DefaultRunFolder(const std::string& job_name, absl::Time now) {
  return absl::StrCat("runs/", job_name, "-", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Create(const std::string& path, const job::Job& job,
                                                             absl::Time wall_time) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).lexically_normal();
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make the run folder ", path, ": ", error.message()));
  const std::string metrics = folder / "metrics.csv";
  if (std::filesystem::exists(metrics, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the run folder ", folder.string(), " holds another run (metrics.csv): choose a new one"));
  }

  std::unique_ptr<RunFolder> run(new RunFolder(folder));
  const std::string job_file = folder / "job.yaml";
  std::ofstream yaml(job_file);
  yaml << ToYaml(job) << std::flush;
  if (absl::Status written = CheckWritten(yaml, job_file); !written.ok()) return written;
  if (absl::Status opened = run->OpenFiles(job, wall_time); !opened.ok()) return opened;
  run->metrics_ << kHeader << std::flush;
  if (absl::Status written = CheckWritten(run->metrics_, metrics); !written.ok()) return written;
  return run;
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Reopen(const std::string& path, const job::Job& job,
                                                             absl::Time wall_time) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).lexically_normal();
  if (error || !std::filesystem::exists(folder / "metrics.csv", error)) {
    return absl::NotFoundError(absl::StrCat("found no run in ", path, " (metrics.csv) to go on with"));
  }
  std::unique_ptr<RunFolder> run(new RunFolder(folder));
  if (absl::Status opened = run->OpenFiles(job, wall_time); !opened.ok()) return opened;
  return run;
}

absl::Status RunFolder::CutBack(double time_s) {
  const std::string file = path_ + "/metrics.csv", draft = file + ".new", undone = path_ + "/metrics-undone.csv";
  std::ifstream in(file);
  std::ofstream kept(draft), dropped(undone, std::ios::app);
  for (std::string line; std::getline(in, line);) {
    double row_s = 0;
    const bool later = absl::SimpleAtod(line.substr(0, line.find(',')), &row_s) && row_s > time_s;
    (later ? dropped : kept) << line << '\n';
  }
  kept.flush();
  dropped.flush();
  if (absl::Status written = CheckWritten(kept, draft); !written.ok()) return written;
  if (absl::Status written = CheckWritten(dropped, undone); !written.ok()) return written;
  std::error_code error;
  std::filesystem::rename(draft, file, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", error.message()));
  metrics_.close();
  metrics_.open(file, std::ios::app);
  return CheckWritten(metrics_, file);
}

absl::Status RunFolder::OpenFiles(const job::Job& job, absl::Time wall_time) {
  const std::string metrics = path_ + "/metrics.csv", events = path_ + "/events.log";
  metrics_.open(metrics, std::ios::app);
  if (absl::Status written = CheckWritten(metrics_, metrics); !written.ok()) return written;
  events_.open(events, std::ios::app);
  if (absl::Status written = CheckWritten(events_, events); !written.ok()) return written;
  if (!job.output().tensorboard()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<EventFile>> curves = EventFile::Create(path_, wall_time);
  if (!curves.ok()) return curves.status();
  curves_ = *std::move(curves);
  return absl::OkStatus();
}

absl::Status RunFolder::Write(const Report& report, absl::Time wall_time) {
  metrics_ << Row(report) << std::flush;
  if (absl::Status written = CheckWritten(metrics_, path_ + "/metrics.csv"); !written.ok()) return written;
  if (curves_ == nullptr) return absl::OkStatus();
  return curves_->Add(wall_time, report.step, Points(report));
}

absl::Status RunFolder::WriteEvent(absl::string_view event, absl::Time wall_time) {
  events_ << absl::FormatTime("%Y-%m-%d %H:%M:%E3S ", wall_time, absl::LocalTimeZone()) << event << '\n' << std::flush;
  return CheckWritten(events_, path_ + "/events.log");
}

absl::Status RunFolder::WriteSummary(const RunSummary& summary) {
  const std::string file = path_ + "/summary.json", draft = file + ".new";
  std::ofstream out(draft);
  out << ToJson(summary) << std::flush;
  if (absl::Status written = CheckWritten(out, draft); !written.ok()) return written;
  std::error_code error;
  std::filesystem::rename(draft, file, error);
  return error ? absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", error.message())) : absl::OkStatus();
}

}  // namespace slackline::scheduler
