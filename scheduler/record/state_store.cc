#include "scheduler/record/state_store.h"

#include <string>

namespace slackline::scheduler {
namespace {

constexpr char kLetter = 's';
constexpr char kKey[] = "s";
// What was overwritten takes at most about so much of the disk.
constexpr uint64_t kTidyBytes = 16 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Open(const std::filesystem::path& folder) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(folder);
  if (!database.ok()) return database.status();
  return std::unique_ptr<StateStore>(new StateStore(*std::move(database)));
}

absl::StatusOr<std::optional<state::Scheduler>> StateStore::Load() const {
  const absl::StatusOr<std::optional<std::string>> bytes = database_->Get(kKey);
  if (!bytes.ok()) return bytes.status();
  if (!*bytes) return std::nullopt;
  state::Scheduler state;
  if (!state.ParseFromString(**bytes)) return absl::DataLossError("the scheduler's saved state cannot be parsed");
  return state;
}

absl::Status StateStore::Save(const state::Scheduler& state) {
  const std::string bytes = state.SerializeAsString();
  if (absl::Status saved = database_->PutSynced(kKey, bytes); !saved.ok()) return saved;
  bytes_ += bytes.size();
  if (bytes_ < kTidyBytes) return absl::OkStatus();
  bytes_ = 0;
  return database_->Tidy(kLetter);
}

}  // namespace slackline::scheduler
