// power.csv of a run folder: a row for each sample of each metered device. A run that meters nothing has no such file.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/record/line_file.h"
#include "scheduler/watch/energy_ledger.h"

namespace slackline::scheduler {

class PowerFile {
 public:
  // Largest size; later samples are not written.
  static constexpr uint64_t kBytesMax = 256 << 20;

  explicit PowerFile(std::string path, uint64_t bytes_max = kBytesMax)
      : path_(std::move(path)), bytes_max_(bytes_max) {}

  // Adds rows; the first ones create the file, or continue that of an earlier process. Errors are those of
  // LineFile::Add().
  absl::Status Add(const std::vector<PowerRow>& rows);
  // Writes rows that were kept, as LineFile does.
  absl::Status Flush() { return lines_ == nullptr ? absl::OkStatus() : lines_->Flush(); }
  // True once rows were left out because the file is too large.
  bool full() const { return full_; }

 private:
  const std::string path_;
  const uint64_t bytes_max_;
  std::unique_ptr<LineFile> lines_;  // null before the first row
  uint64_t bytes_ = 0;
  bool full_ = false;
};

}  // namespace slackline::scheduler
