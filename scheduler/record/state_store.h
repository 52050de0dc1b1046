// State of the scheduler on disk, for a scheduler that is restarted.
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
  // Opens the store in `folder`, which is created if there is none.
  //   kAborted  another scheduler has the store open; it may be about to end
  //   others    as Database::Open()
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(const std::filesystem::path& folder);

  // Returns the last saved state; nullopt if nothing was saved.
  //   kDataLoss  the state cannot be read
  absl::StatusOr<std::optional<state::Scheduler>> Load() const;
  // Saves the state; returns once it would survive a loss of power.
  absl::Status Save(const state::Scheduler& state);

 private:
  explicit StateStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  const std::unique_ptr<Database> database_;
  uint64_t bytes_ = 0;  // bytes written since space of overwritten states was given back
};

}  // namespace slackline::scheduler
