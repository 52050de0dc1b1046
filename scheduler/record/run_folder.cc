#include "scheduler/record/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/job_file.h"
#include "common/storage/durable_file.h"
#include "common/text/folder_name.h"
#include "common/text/utf8.h"
#include "scheduler/record/csv_cell.h"

namespace slackline::scheduler {
namespace {

constexpr char kEpochsHeader[] =
    "epoch,end_s,train_s,validation_s,test_s,loss,accuracy,test_loss,test_accuracy,top5_accuracy,joules,"
    "compute_s,data_s,wait_s,push_s,pull_s,samples,samples_applied";

absl::Status CheckName(const std::string& folder) {
  const std::string mistake = FolderMistake(folder);
  if (mistake.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the run folder ", ValidText(folder), ": ", mistake));
}

std::string EpochRow(const EpochFigures& row) {
  const EpochFigures::WorkerSeconds& seconds = row.seconds;
  return absl::StrFormat("%d,%.3f,%.3f,%.3f,%.3f,%s,%s,%s,%s,%s,%s,%.3f,%.3f,%.3f,%.3f,%.3f,%d,%d", row.epoch,
                         row.end_s, row.train_s, row.validation_s, row.test_s, CsvCell(row.loss), CsvCell(row.accuracy),
                         CsvCell(row.test_loss), CsvCell(row.test_accuracy), CsvCell(row.top5_accuracy),
                         CsvCell(row.joules), seconds.compute, seconds.data, seconds.wait, seconds.push, seconds.pull,
                         row.samples, row.samples_applied);
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
      {"train/learning_rate", report.learning_rate},
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
  // A script may report what the job knows better, such as the learning rate.
  const auto add_named = [&](absl::string_view folder, const NamedValues& values) {
    for (const auto& [name, value] : values) {
      const std::string tag = absl::StrCat(folder, name);
      const auto is_tag = [&](const auto& point) { return point.first == tag; };
      if (std::none_of(points.begin(), points.end(), is_tag)) points.emplace_back(tag, value);
    }
  };
  add_named("train/", report.train_values);
  add_named("test/", report.test_values);
  add("test/loss", report.test_loss);
  add(report.finds_objects ? "test/map" : "test/accuracy", report.test_accuracy);
  return points;
}

// A bucket for each number of versions up to 63; above, what is known is the power of two below.
Distribution ToDistribution(const StalenessCounts& staleness) {
  Distribution out;
  for (size_t i = 0; i < staleness.used(); ++i) {
    const auto count = static_cast<double>(staleness.InBucket(i));
    const auto lowest = static_cast<double>(StalenessCounts::StalenessOf(i));
    const double highest = i < StalenessCounts::kExact ? lowest : 2 * lowest - 1;
    const double middle = (lowest + highest) / 2;
    out.limits.push_back(highest + 0.5);
    out.counts.push_back(count);
    if (count == 0) continue;
    if (out.number == 0) out.min = lowest;
    out.max = highest;
    out.number += count;
    out.sum += count * middle;
    out.sum_squares += count * middle * middle;
  }
  return out;
}

absl::Status CheckWritten(const std::ofstream& out, const std::string& path) {
  return out ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

// A reader sees the old file or the new one.
absl::Status Replace(const std::string& file, const std::string& text) {
  DurableFile out(file);
  absl::Status status = out.Open();
  if (status.ok()) status = out.Write(text.data(), text.size());
  if (status.ok()) status = out.Commit();
  return status;
}

}  // namespace

std::string DefaultRunFolder(const std::string& job_name, absl::Time now) {
  return absl::StrCat("runs/", job_name, "-", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
}

std::string RunName(const std::string& run_folder) {
  const std::filesystem::path path(run_folder);
  // Nothing follows a slash at the end.
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

absl::StatusOr<std::unique_ptr<RunFolderWriter>> RunFolderWriter::Create(const std::string& path, const job::Job& job,
                                                                         absl::Time wall_time) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).lexically_normal();
  if (absl::Status name = CheckName(folder); !name.ok()) return name;
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make the run folder ", path, ": ", error.message()));
  const std::string metrics = folder / "metrics.csv";
  if (std::filesystem::exists(metrics, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the run folder ", folder.string(), " holds another run (metrics.csv): choose a new one"));
  }

  std::unique_ptr<RunFolderWriter> run(new RunFolderWriter(folder));
  const std::string job_file = folder / "job.yaml";
  std::ofstream yaml(job_file);
  yaml << ToYaml(job) << std::flush;
  if (absl::Status written = CheckWritten(yaml, job_file); !written.ok()) return written;
  if (absl::Status opened = run->OpenFiles(job, wall_time); !opened.ok()) return opened;
  return run;
}

absl::StatusOr<std::unique_ptr<RunFolderWriter>> RunFolderWriter::Reopen(const std::string& path, const job::Job& job,
                                                                         absl::Time wall_time) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).lexically_normal();
  if (absl::Status name = CheckName(folder); !name.ok()) return name;
  const std::string metrics = folder / "metrics.csv";
  const bool has_metrics = !error && std::filesystem::exists(metrics, error);
  // A copy of the job and its checkpoints is a run, too.
  if (!has_metrics && (error || !std::filesystem::exists(folder / "job.yaml", error))) {
    return absl::NotFoundError(absl::StrCat("found no run in ", path, " (metrics.csv or job.yaml) to go on with"));
  }
  std::unique_ptr<RunFolderWriter> run(new RunFolderWriter(folder));
  if (absl::Status opened = run->OpenFiles(job, wall_time); !opened.ok()) return opened;
  return run;
}

absl::Status RunFolderWriter::CutBack(double time_s) {
  return metrics_->CutBack(time_s, path_ + "/metrics-undone.csv");
}

absl::Status RunFolderWriter::OpenFiles(const job::Job& job, absl::Time wall_time) {
  absl::StatusOr<std::unique_ptr<MetricsFile>> metrics = MetricsFile::Open(path_ + "/metrics.csv");
  if (!metrics.ok()) return metrics.status();
  metrics_ = *std::move(metrics);
  absl::StatusOr<std::unique_ptr<LineFile>> events = LineFile::Open(path_ + "/events.log", /*header=*/"");
  if (!events.ok()) return events.status();
  events_ = *std::move(events);
  if (!job.output().tensorboard()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<EventFile>> curves = EventFile::Create(path_, wall_time);
  if (!curves.ok()) return curves.status();
  curves_ = *std::move(curves);
  return absl::OkStatus();
}

absl::Status RunFolderWriter::Write(const Report& report, absl::Time wall_time) {
  absl::Status status = metrics_->Add(report);
  if (curves_ == nullptr) return status;
  curves_written_ = curves_->Add(wall_time, report.step, Points(report));
  if (report.staleness.used() > 0) {
    curves_written_.Update(
        curves_->AddHistogram(wall_time, report.step, "asynchrony/staleness", ToDistribution(report.staleness)));
  }
  if (const std::optional<PngImage> image = DrawConfusion(report.confusion)) {
    curves_written_.Update(curves_->AddImage(wall_time, report.step, "test/confusion", *image));
  }
  status.Update(curves_written_);
  return status;
}

absl::Status RunFolderWriter::WriteEvent(absl::string_view event, absl::Time wall_time) {
  return events_->Add(EventLine(event, wall_time));
}

absl::Status RunFolderWriter::Flush() {
  absl::Status status = events_->Flush();
  status.Update(metrics_->Flush());
  status.Update(power_.Flush());
  status.Update(curves_written_);
  return status;
}

absl::Status RunFolderWriter::WriteSummary(const RunSummary& summary) {
  return Replace(path_ + "/summary.json", ToJson(summary));
}

absl::Status RunFolderWriter::WriteEpochs(const std::vector<EpochFigures>& rows) {
  std::set<std::string> names;
  for (const EpochFigures& row : rows) {
    for (const auto& [name, value] : row.test_values) names.insert(name);
  }
  std::string csv = kEpochsHeader;
  for (const std::string& name : names) absl::StrAppend(&csv, ",test/", name);
  csv += '\n';
  for (const EpochFigures& row : rows) {
    absl::StrAppend(&csv, EpochRow(row));
    for (const std::string& name : names) {
      const auto found = row.test_values.find(name);
      absl::StrAppend(&csv, ",", found == row.test_values.end() ? "" : CsvCell(found->second));
    }
    csv += '\n';
  }
  return Replace(path_ + "/epochs.csv", csv);
}

}  // namespace slackline::scheduler
