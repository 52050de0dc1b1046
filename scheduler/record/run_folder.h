// The folder that a run leaves behind: job.yaml, metrics.csv, power.csv, events.log, epochs.csv, summary.json, and what
// others put beside them.
//
// Thread-safety: none; one thread writes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "job.pb.h"
#include "scheduler/base/report.h"
#include "scheduler/record/event_file.h"
#include "scheduler/record/line_file.h"
#include "scheduler/record/metrics_file.h"
#include "scheduler/record/power_file.h"
#include "scheduler/record/run_summary.h"
#include "scheduler/watch/epoch_book.h"

namespace slackline::scheduler {

// Returns the folder of a run for which nobody chose one: runs/NAME-DATE-TIME, relative to the working directory.
std::string DefaultRunFolder(const std::string& job_name, absl::Time now);

// Returns the name of the run that is kept in `run_folder`: the last part of the path.
std::string RunName(const std::string& run_folder);

class RunFolderWriter {
 public:
  // Creates the folder and its files; job.yaml has every field.
  //   kAlreadyExists  the folder holds another run
  //   kUnavailable    something cannot be written
  static absl::StatusOr<std::unique_ptr<RunFolderWriter>> Create(const std::string& path, const job::Job& job,
                                                                 absl::Time wall_time);

  // Opens the folder of a run that continues; its files are continued, too.
  //   kNotFound     there is no run
  //   kUnavailable  something cannot be written
  static absl::StatusOr<std::unique_ptr<RunFolderWriter>> Reopen(const std::string& path, const job::Job& job,
                                                                 absl::Time wall_time);

  // Takes the run back to `time_s` of training, where it continues: later rows of metrics.csv go to metrics-undone.csv.
  //   kUnavailable  something cannot be written
  absl::Status CutBack(double time_s);

  // Absolute path of the folder.
  const std::string& path() const { return path_; }

  // Adds a row to metrics.csv and points to the curves; they are on disk on return, except for the system's cache.
  // Returns errors as Flush() does, and so do the functions below.
  absl::Status Write(const Report& report, absl::Time wall_time);
  // Adds rows to power.csv.
  absl::Status WritePower(const std::vector<PowerRow>& rows) { return power_.Add(rows); }
  // True once power.csv has left out samples because it is too large.
  bool power_full() const { return power_.full(); }
  // Adds a line to events.log, with the time in front.
  absl::Status WriteEvent(absl::string_view event, absl::Time wall_time);
  // Writes rows and events that were kept because they could not be written before, if it can. Points of curves are not
  // kept; after a failure the curves count as broken until the points of a later report are written.
  //   kResourceExhausted  the disk is full
  //   kUnavailable        something cannot be written for another reason
  absl::Status Flush();
  // Writes summary.json, in place of an earlier one; a reader sees the old file or the new one.
  absl::Status WriteSummary(const RunSummary& summary);
  // Writes epochs.csv in the same way.
  absl::Status WriteEpochs(const std::vector<EpochFigures>& rows);

 private:
  explicit RunFolderWriter(std::string path) : path_(std::move(path)), power_(path_ + "/power.csv") {}
  // Opens metrics.csv, events.log and the curves.
  absl::Status OpenFiles(const job::Job& job, absl::Time wall_time);

  const std::string path_;
  PowerFile power_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<LineFile> events_;
  std::unique_ptr<EventFile> curves_;  // null if job.output.tensorboard is off
  absl::Status curves_written_;        // status of the latest report's points
};

}  // namespace slackline::scheduler
