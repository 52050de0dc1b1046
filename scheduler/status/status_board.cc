#include "scheduler/status/status_board.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/folder.h"
#include "scheduler/base/message_json.h"
#include "scheduler/status/status_alerts.h"

namespace slackline::scheduler {
namespace {

void AddDisk(const std::string& folder, wire::JobStatus& status) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return;
  status.mutable_disk()->set_free_bytes(space.available);
  status.mutable_disk()->set_total_bytes(space.capacity);
}

// When it ended, by what was written down then, unless the run has gone on since.
void AddEnd(wire::JobStatus& status) {
  if (status.state() == "starting" || status.state() == "training") return;
  for (const wire::EventView& event : status.events()) {
    if (absl::StartsWith(event.text(), "the scheduler goes on ") ||
        absl::StartsWith(event.text(), "goes on from checkpoint ")) {
      status.clear_ended_unix_ms();
    }
    if (absl::StartsWith(event.text(), absl::StrCat("the job is ", status.state()))) {
      status.set_ended_unix_ms(event.unix_ms());
    }
  }
}

}  // namespace

void StatusBoard::Open(Source view) {
  absl::MutexLock lock(&mutex_);
  view_ = std::move(view);
}

void StatusBoard::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  view_ = nullptr;
  json_ = nullptr;
}

wire::JobStatus StatusBoard::Status() {
  absl::MutexLock lock(&mutex_);
  return view_ == nullptr ? wire::JobStatus() : Compose();
}

std::shared_ptr<const std::string> StatusBoard::Json() {
  absl::MutexLock lock(&mutex_);
  if (view_ == nullptr) return nullptr;
  const absl::Time begin = time_.Now();
  if (json_ != nullptr && begin < json_until_) return json_;
  json_ = std::make_shared<const std::string>(ToJson(Compose()));
  const absl::Time end = time_.Now();
  json_until_ = end + std::max(options_.fresh, 20 * (end - begin));
  return json_;
}

void StatusBoard::Wait(absl::Duration time) const {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&closed_), time);
}

wire::JobStatus StatusBoard::Compose() {
  wire::JobStatus status = view_();
  status.set_unix_ms(absl::ToUnixMillis(absl::Now()));
  history_.Fill(status);
  AddCheckpoints(*status.mutable_checkpoints());
  AddDisk(options_.run_folder, status);
  AddNodes(status);
  AddAlerts(status);
  AddEnd(status);
  return status;
}

void StatusBoard::AddCheckpoints(wire::JobCheckpoints& checkpoints) {
  const absl::Time now = absl::Now();
  if (checkpoints.whole() != kept_as_of_ && !options_.checkpoints.empty()) {
    kept_as_of_ = checkpoints.whole();
    kept_.clear();
    for (const checkpoint::Found& found : checkpoint::List(options_.checkpoints)) {
      if (kept_.size() >= kCheckpointsShown) break;
      const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(found.path);
      if (!manifest.ok()) continue;
      Kept& kept = kept_.emplace_back(Kept{found.number, 0, absl::FromUnixMicros(manifest->created_unix_us())});
      for (const wire::CheckpointFile& file : manifest->files()) kept.bytes += file.bytes();
    }
    std::reverse(kept_.begin(), kept_.end());
  }
  for (const Kept& kept : kept_) {
    wire::CheckpointView& view = *checkpoints.add_kept();
    view.set_number(kept.number);
    view.set_bytes(kept.bytes);
    view.set_age_s(std::max(0.0, absl::ToDoubleSeconds(now - kept.made)));
  }
}

}  // namespace slackline::scheduler
