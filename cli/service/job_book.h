// The jobs of the service on disk, for a host that is started again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/database.h"
#include "job_service.pb.h"

namespace slackline::cli {

// Thread-safety: none.
class JobBook {
 public:
  // Opens the book in `folder`, which is created if there is none.
  //   kAborted  another host has it open
  //   others    as Database::Open()
  static absl::StatusOr<std::unique_ptr<JobBook>> Open(const std::filesystem::path& folder);

  // Returns all jobs, in the order of their numbers.
  //   kDataLoss  a job cannot be read
  absl::StatusOr<std::vector<wire::ServiceJob>> Load() const;
  // Save and remove a job. Return once the change would survive a loss of power.
  absl::Status Save(const wire::ServiceJob& job);
  absl::Status Remove(uint64_t id);
  // Returns the highest number of a job that was removed; 0 if there is none. Numbers are never given twice.
  //   kDataLoss  it cannot be read
  absl::StatusOr<uint64_t> LastRemoved() const;

 private:
  explicit JobBook(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  // Gives back the space of what was overwritten, from time to time.
  void Written(uint64_t bytes);

  const std::unique_ptr<Database> database_;
  uint64_t bytes_ = 0;  // bytes written since space was given back
};

}  // namespace slackline::cli
