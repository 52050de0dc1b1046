#include "worker/life/life.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/logging.h"
#include "worker/life/patience.h"

namespace slackline::worker {

Life::Life(const Options& options, SchedulerLink& link) : options_(options), link_(link) {
  link_.set_on_end([this](const absl::Status& status, const std::string& reason) { OnLifeEnd(status, reason); });
  link_.set_on_map([this](const ShardMap& map) { OnMap(map); });
}

Life::~Life() {
  link_.set_on_end(nullptr);
  link_.set_on_map(nullptr);
}

absl::Duration Life::silence_max() const { return SilenceMax(options_.timeouts, options_.server_return); }

absl::Status Life::Join() {
  const absl::StatusOr<WorkerMembership> membership = link_.Join();
  if (!membership.ok()) return membership.status();
  membership_ = *membership;
  absl::StatusOr<ShardMap> map = link_.GetShardMap();
  if (!map.ok()) return map.status();
  map_ = *std::move(map);
  log::Info("live as worker ", membership_.worker.value(), " (incarnation ", membership_.incarnation.value(),
            ") from clock ", membership_.first_clock.value(),
            membership_.send_seed ? ", sends the initial weights" : "");
  return absl::OkStatus();
}

absl::Status Life::SeedAndPull(absl::Span<float> parameters) {
  const absl::Duration timeout = std::max(options_.timeouts.startup, silence_max());
  absl::Status status;
  if (membership_.send_seed) status = Await([&] { return client()->Seed(parameters, timeout); });
  return status.ok() ? Await([&] { return client()->Pull(parameters, timeout); }) : status;
}

// --- The client -------------------------------------------------------------------------------------------------

ClientOptions Life::MakeClientOptions(bool reader) const {
  ClientOptions options;
  options.job = membership_.job;
  options.worker = membership_.worker;
  options.incarnation = membership_.incarnation;
  options.first_clock = reader ? Clock64(0) : membership_.first_clock;
  options.reader = reader;
  options.timeouts = options_.timeouts;
  options.on_notice = [](const std::string& message) { log::Info(message); };
  return options;
}

std::unique_ptr<Client> Life::Replace(std::unique_ptr<Client> client) {
  absl::MutexLock lock(&mutex_);
  std::swap(client_, client);
  if (client_ != nullptr && newest_map_ && newest_map_->generation > map_.generation) client_->Remap(*newest_map_);
  return client;
}

absl::Status Life::PullAside(std::unique_ptr<Client> reader, absl::Span<float> parameters) {
  std::unique_ptr<Client> own = Replace(std::move(reader));
  const absl::Status status = Await([&] { return client()->Pull(parameters, silence_max()); });
  Close("has read the weights");
  Replace(std::move(own));
  return status.ok() ? CheckInterrupted() : status;
}

void Life::Close(const std::string& reason) {
  if (client() == nullptr) return;
  client()->Close(reason, kGoodbyeTimeout);
  Replace(nullptr);
}

void Life::OnMap(const ShardMap& map) {
  absl::MutexLock lock(&mutex_);
  newest_map_ = map;
  if (client_ != nullptr) client_->Remap(map);
}

// --- Waits and ends ---------------------------------------------------------------------------------------------

absl::Status Life::BeginWait() {
  absl::MutexLock lock(&mutex_);
  // The servers may never answer an expelled worker.
  if (absl::Status status = InterruptStatus(); !status.ok()) return status;
  if (waits_over_) return absl::CancelledError(*waits_over_);
  waiting_ = true;
  link_.progress().SetWaiting(true);
  return absl::OkStatus();
}

void Life::EndWait() {
  absl::MutexLock lock(&mutex_);
  waiting_ = false;
  link_.progress().SetWaiting(false);
}

absl::Status Life::CheckStopped() {
  absl::MutexLock lock(&mutex_);
  return end_ ? absl::CancelledError(end_->reason) : absl::OkStatus();
}

absl::Status Life::CheckInterrupted() {
  absl::MutexLock lock(&mutex_);
  return InterruptStatus();
}

absl::Status Life::InterruptStatus() const {
  if (end_) return absl::CancelledError(end_->reason);
  return expelled_ ? absl::FailedPreconditionError(*expelled_) : absl::OkStatus();
}

bool Life::AwaitInterruption(const Wait& wait, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return wait(mutex_, absl::Condition(this, &Life::Interrupted), timeout);
}

absl::Status Life::Cause(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (end_) return end_->status.ok() ? absl::CancelledError(end_->reason) : end_->status;
  const std::optional<std::string> reason = std::exchange(expelled_, std::nullopt);
  return reason ? absl::FailedPreconditionError(absl::StrCat("the scheduler expelled this worker: ", *reason)) : status;
}

std::optional<Life::End> Life::end() const {
  absl::MutexLock lock(&mutex_);
  return end_;
}

void Life::Stop(const absl::Status& status, const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (end_) return;
    end_ = End{status, reason};
    // The streams stay whole for a goodbye, unless a call waits for them.
    if (waiting_) client_->Cancel(reason);
  }
  link_.Interrupt(reason);
}

void Life::EndWaits(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  waits_over_ = reason;
  if (waiting_) client_->Cancel(reason);
}

void Life::OnLifeEnd(const absl::Status& status, const std::string& reason) {
  if (!absl::IsFailedPrecondition(status)) return Stop(status, reason);
  // Expelled: the servers may keep silent about it, and this worker may come back under another incarnation.
  log::Warning("the scheduler expelled this worker: ", reason);
  absl::MutexLock lock(&mutex_);
  expelled_ = reason;
  if (waiting_) client_->Cancel(reason);
}

}  // namespace slackline::worker
