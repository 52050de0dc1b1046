#include "common/rpc/followed_channel.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/log/logging.h"

namespace slackline::rpc {
namespace {

// Nobody listens there: calls fail as those to a process that is not there yet.
constexpr char kNowhere[] = "127.0.0.1:0";

// One of both is empty.
struct Found {
  std::string address;
  std::string mistake;
};

Found LookAt(const std::string& place) {
  if (!absl::StrContains(place, '/')) return {place, ""};
  std::error_code error;
  if (std::filesystem::is_directory(place, error)) {
    return {"", absl::StrCat(place, " is a folder; allowed is HOST:PORT, or the file that holds it")};
  }
  std::ifstream in(place);
  if (!in) {
    const bool missing = !std::filesystem::exists(place, error);
    return {"", absl::StrCat(missing ? "no such file yet: " : "cannot read ", place)};
  }
  std::string address;
  std::getline(in, address);
  absl::StripAsciiWhitespace(&address);
  const std::string mistake = AddressMistake(address);
  if (mistake.empty()) return {address, ""};
  return {"", absl::StrCat(place, ": ", mistake)};
}

}  // namespace

FollowedChannel::FollowedChannel(std::string place, std::shared_ptr<const Protection> protection)
    : place_(std::move(place)), protection_(std::move(protection)) {
  Found found = LookAt(place_);
  if (!found.mistake.empty()) log::Warning(found.mistake);
  absl::MutexLock lock(&mutex_);
  channel_ = ControlChannel(found.address.empty() ? kNowhere : found.address, protection_);
  address_ = std::move(found.address);
  mistake_ = std::move(found.mistake);
}

std::shared_ptr<grpc::Channel> FollowedChannel::channel() const {
  absl::MutexLock lock(&mutex_);
  return channel_;
}

std::string FollowedChannel::Why(const absl::Status& status) const {
  absl::MutexLock lock(&mutex_);
  return address_.empty() ? mistake_ : std::string(status.message());
}

void FollowedChannel::Failed() {
  const auto [address, mistake] = LookAt(place_);
  absl::MutexLock lock(&mutex_);
  if (!mistake.empty() && mistake != mistake_) log::Warning(mistake);
  mistake_ = mistake;
  // A channel that has failed lets calls fail at once while it tries again, so that nobody drives its handshakes, which
  // then take longer than they may. Calls on a new one wait for them. One that still connects is let go on.
  const bool shakes_hands = protection_ != nullptr && protection_->credentials != nullptr;
  const bool stuck = shakes_hands && channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (address.empty() || (address == address_ && !stuck)) return;
  if (!address_.empty() && address != address_) log::Info(place_, " says ", address, " now");
  address_ = address;
  channel_ = ControlChannel(address, protection_);
}

void FollowedChannel::Drop() {
  absl::MutexLock lock(&mutex_);
  // It connects with its first call.
  channel_ = ControlChannel(address_.empty() ? kNowhere : address_, protection_);
}

}  // namespace slackline::rpc
