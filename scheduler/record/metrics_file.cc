#include "scheduler/record/metrics_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/storage/durable_file.h"
#include "scheduler/record/csv_cell.h"

namespace slackline::scheduler {
namespace {

constexpr absl::string_view kHeader =
    "time_s,epoch,step,samples,loss,accuracy,test_accuracy,samples_per_second,staleness_mean,staleness_max,slack,"
    "live_workers";

std::map<std::string, double> NamedOf(const Report& report) {
  std::map<std::string, double> named;
  for (const auto& [name, value] : report.train_values) named.emplace(absl::StrCat("train/", name), value);
  for (const auto& [name, value] : report.test_values) named.emplace(absl::StrCat("test/", name), value);
  return named;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path) {
  std::unique_ptr<MetricsFile> file(new MetricsFile(path));
  std::ifstream in(path);
  std::string header;
  if (std::getline(in, header)) {
    absl::string_view rest = header;
    file->may_widen_ = absl::ConsumePrefix(&rest, kHeader) && (rest.empty() || absl::ConsumePrefix(&rest, ","));
    if (file->may_widen_) file->named_ = absl::StrSplit(rest, ',', absl::SkipEmpty());
  }
  if (absl::Status opened = file->OpenLines(); !opened.ok()) return opened;
  return file;
}

absl::Status MetricsFile::OpenLines() {
  absl::StatusOr<std::unique_ptr<LineFile>> lines = LineFile::Open(path_, Header());
  if (lines.ok()) lines_ = *std::move(lines);
  return lines.status();
}

std::string MetricsFile::Header() const {
  std::string header(kHeader);
  for (const std::string& name : named_) absl::StrAppend(&header, ",", name);
  return header;
}

std::string MetricsFile::RowOf(const Report& report) const {
  std::string row = absl::StrFormat("%.3f,%d,%d,%d,%s,%s,%s,%.1f,%.4g,%d,%d,%d", report.time_s, report.epoch,
                                    report.step, report.samples, CsvCell(report.loss), CsvCell(report.accuracy),
                                    CsvCell(report.test_accuracy), report.samples_per_second, report.staleness_mean,
                                    report.staleness_max, report.slack, report.live_workers);
  const std::map<std::string, double> named = NamedOf(report);
  for (const std::string& name : named_) {
    const auto found = named.find(name);
    absl::StrAppend(&row, ",", found == named.end() ? "" : CsvCell(found->second));
  }
  return row;
}

absl::Status MetricsFile::Add(const Report& report) {
  absl::Status status = Widen(report);
  status.Update(lines_->Add(RowOf(report)));
  return status;
}

absl::Status MetricsFile::Widen(const Report& report) {
  std::vector<std::string> wanted = named_;
  for (const auto& [name, value] : NamedOf(report)) {
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) wanted.push_back(name);
  }
  wanted.resize(std::min(wanted.size(), kNamedMax));
  if (!may_widen_ || wanted.size() <= named_.size()) return absl::OkStatus();
  // Rows that are kept have the columns of before.
  if (absl::Status flushed = lines_->Flush(); !flushed.ok()) return flushed;
  const std::string empty(wanted.size() - named_.size(), ',');
  std::swap(named_, wanted);
  std::string text = Header() + '\n';
  std::ifstream in(path_);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) absl::StrAppend(&text, line, empty, "\n");
  DurableFile out(path_);
  absl::Status status = out.Open();
  if (status.ok()) status = out.Write(text.data(), text.size());
  if (status.ok()) status = out.Commit();
  if (!status.ok()) {
    std::swap(named_, wanted);
    return status;
  }
  return OpenLines();
}

absl::Status MetricsFile::CutBack(double time_s, const std::string& undone) {
  const std::string draft = path_ + ".new";
  std::ifstream in(path_);
  std::ofstream kept(draft), dropped(undone, std::ios::app);
  for (std::string line; std::getline(in, line);) {
    double row_s = 0;
    const bool later = absl::SimpleAtod(line.substr(0, line.find(',')), &row_s) && row_s > time_s;
    (later ? dropped : kept) << line << '\n';
  }
  kept.flush();
  dropped.flush();
  if (!kept) return absl::UnavailableError(absl::StrCat("cannot write ", draft));
  if (!dropped) return absl::UnavailableError(absl::StrCat("cannot write ", undone));
  std::error_code error;
  std::filesystem::rename(draft, path_, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot write ", path_, ": ", error.message()));
  return OpenLines();
}

}  // namespace slackline::scheduler
