// metrics.csv of a run folder: a row for each report. Figures that a script names have columns behind the others,
// train/NAME and test/NAME, from the report on that has them first.
//
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/metric_names.h"
#include "scheduler/base/report.h"
#include "scheduler/record/line_file.h"

namespace slackline::scheduler {

class MetricsFile {
 public:
  // Largest number of columns for named figures; further names have none.
  static constexpr size_t kNamedMax = 2 * kMetricNamesMax;

  // Opens a file, or begins one.
  //   kResourceExhausted, kUnavailable  it cannot be written
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path);

  // Adds a row. A name that is new gives all earlier rows an empty cell: the file is replaced as a whole. If that
  // fails, the row has no such cell, and the next report tries again. Errors are those of LineFile::Add().
  absl::Status Add(const Report& report);
  // Writes rows that were kept, as LineFile does.
  absl::Status Flush() { return lines_->Flush(); }
  // Moves the rows that are later than `time_s` to the end of the file `undone`.
  //   kUnavailable  something cannot be written
  absl::Status CutBack(double time_s, const std::string& undone);

 private:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  absl::Status OpenLines();
  // Adds columns for names of the report that have none.
  absl::Status Widen(const Report& report);
  std::string Header() const;
  std::string RowOf(const Report& report) const;

  const std::string path_;
  std::vector<std::string> named_;  // such as test/perplexity, in the order of the columns
  bool may_widen_ = true;           // false if another version has begun the file, with other columns
  std::unique_ptr<LineFile> lines_;
};

}  // namespace slackline::scheduler
