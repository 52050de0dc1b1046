// The folder that a run leaves behind: job.yaml, metrics.csv, events.log, epochs.csv, summary.json, and what others put
// beside them.
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
#include "scheduler/epoch_book.h"
#include "scheduler/event_file.h"
#include "scheduler/line_file.h"
#include "scheduler/report.h"
#include "scheduler/run_summary.h"

namespace slackline::scheduler {

// Where a run goes that nobody chose a folder for: runs/NAME-DATE-TIME, relative to the working directory.
std::string DefaultRunFolder(const std::string& job_name, absl::Time now);

class RunFolder {
 public:
  // Makes the folder and its files; job.yaml has every field.
  //   kAlreadyExists  the folder holds another run
  //   kUnavailable    something cannot be written
  static absl::StatusOr<std::unique_ptr<RunFolder>> Create(const std::string& path, const job::Job& job,
                                                           absl::Time wall_time);

  // The folder of a run that goes on: what is there is written on.
  //   kNotFound     there is no run
  //   kUnavailable  something cannot be written
  static absl::StatusOr<std::unique_ptr<RunFolder>> Reopen(const std::string& path, const job::Job& job,
                                                           absl::Time wall_time);

  // The run goes on from where it was at this time of training: rows of metrics.csv from later on go to
  // metrics-undone.csv.
  //   kUnavailable  something cannot be written
  absl::Status CutBack(double time_s);

  // Absolute.
  const std::string& path() const { return path_; }

  // Adds a row to metrics.csv and points to the curves; on disk when it returns, but for the system's cache. Errors
  // here and below as of Flush().
  absl::Status Write(const Report& report, absl::Time wall_time);
  // Adds a line to events.log, with the time before it.
  absl::Status WriteEvent(absl::string_view event, absl::Time wall_time);
  // Rows and events that could not be written are kept: writes them, if it can. Points of curves are not kept; after a
  // failure the curves count as broken until the points of a later report are written.
  //   kResourceExhausted  the disk is full
  //   kUnavailable        something cannot be written otherwise
  absl::Status Flush();
  // Writes summary.json, in the place of an earlier one; a reader sees one or the other.
  absl::Status WriteSummary(const RunSummary& summary);
  // The same of epochs.csv.
  absl::Status WriteEpochs(const std::vector<EpochFigures>& rows);

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  // Opens metrics.csv, events.log and the curves.
  absl::Status OpenFiles(const job::Job& job, absl::Time wall_time);

  const std::string path_;
  std::unique_ptr<LineFile> metrics_;
  std::unique_ptr<LineFile> events_;
  std::unique_ptr<EventFile> curves_;  // null where job.output.tensorboard is off
  absl::Status curves_written_;        // of the latest report
};

}  // namespace slackline::scheduler
