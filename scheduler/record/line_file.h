// A text file that only grows, line by line: events.log, metrics.csv.
//
// Each line is a single write, so that readers see whole lines, and a kill leaves whole lines. A line that was cut off
// nevertheless (a loss of power, a full disk) is removed when the file is opened again. Lines that cannot be written
// are kept, and written before later ones.
//
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace slackline::scheduler {

// Returns a line of events.log: the local time, and the event.
std::string EventLine(absl::string_view event, absl::Time wall_time);

class LineFile {
 public:
  // Largest number of lines that are kept while they cannot be written; if there are more, the oldest are dropped.
  static constexpr size_t kKeptMax = 10000;

  // Opens the file, or creates it. `header`: first line of a new file; empty: none.
  //   kResourceExhausted  the disk is full
  //   kUnavailable        the file cannot be opened
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& path, const std::string& header);

  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  ~LineFile();

  // Writes `line`, which is given without its end. On an error, as of Flush(), the line is kept.
  absl::Status Add(std::string line);
  // Writes the kept lines, into a new file if somebody has removed this one.
  //   kResourceExhausted  the disk is full
  //   kUnavailable        the file system refuses for another reason
  absl::Status Flush();
  // True if Flush() has something to write.
  bool behind() const { return !kept_.empty(); }

 private:
  LineFile(std::string path, std::string header) : path_(std::move(path)), header_(std::move(header)) {}
  absl::Status OpenFile();
  absl::Status WriteLine(const std::string& line);
  bool Removed() const;

  const std::string path_;
  const std::string header_;
  int descriptor_ = -1;
  std::deque<std::string> kept_;
};

}  // namespace slackline::scheduler
