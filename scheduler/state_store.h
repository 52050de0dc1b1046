// The scheduler's state on disk, for a scheduler that is started again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/database.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Thread-safety: none.
class StateStore {
 public:
  // Makes the folder where there is none.
  //   kAborted  another scheduler has it open; it may be about to end
  //   others    as Database::Open()
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(const std::filesystem::path& folder);

  // What was saved last; nothing where nothing was.
  //   kDataLoss  it cannot be read
  absl::StatusOr<std::optional<state::Scheduler>> Load() const;
  // Returns when it would survive a loss of power.
  absl::Status Save(const state::Scheduler& state);

 private:
  explicit StateStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  const std::unique_ptr<Database> database_;
  uint64_t bytes_ = 0;  // since what was overwritten was given back
};

}  // namespace slackline::scheduler
