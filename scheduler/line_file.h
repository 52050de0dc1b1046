// A text file that only grows, line by line: events.log, metrics.csv.
//
// A line is one write, so that whoever reads or kills sees whole lines; one that was cut off nevertheless (a loss of
// power, a full disk) is removed when the file is opened again. What cannot be written is kept and written before what
// follows.
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

// A line of events.log: the local time, and what happened.
std::string EventLine(absl::string_view event, absl::Time wall_time);

class LineFile {
 public:
  // Lines that are kept while they cannot be written; of more, the oldest are dropped.
  static constexpr size_t kKeptMax = 10000;

  // Opens or makes it. `header`: the first line of a new one; empty: it has none.
  //   kResourceExhausted  the disk is full
  //   kUnavailable        it cannot be opened
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& path, const std::string& header);

  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  ~LineFile();

  // `line` without its end. On errors as of Flush() it is kept.
  absl::Status Add(std::string line);
  // Writes what is kept, into a new file where somebody has removed this one.
  //   kResourceExhausted  the disk is full
  //   kUnavailable        the file system refuses otherwise
  absl::Status Flush();
  // Flush() has something to write.
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
