#include "common/rpc/followed_channel.h"

#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/address.h"
#include "common/logging.h"

namespace slackline::rpc {
namespace {

// Nobody listens there: calls fail as those to a process that is not there yet.
constexpr char kNowhere[] = "127.0.0.1:0";

// Empty while there is none.
std::string AddressAt(const std::string& place) {
  if (!absl::StrContains(place, '/')) return place;
  std::ifstream in(place);
  std::string address;
  std::getline(in, address);
  absl::StripAsciiWhitespace(&address);
  return AddressMistake(address).empty() ? address : "";
}

}  // namespace

FollowedChannel::FollowedChannel(std::string place, std::shared_ptr<const Protection> protection)
    : place_(std::move(place)),
      protection_(std::move(protection)),
      address_(AddressAt(place_)),
      channel_(ControlChannel(address_.empty() ? kNowhere : address_, protection_)) {}

std::shared_ptr<grpc::Channel> FollowedChannel::channel() const {
  absl::MutexLock lock(&mutex_);
  return channel_;
}

void FollowedChannel::Failed() {
  const std::string address = AddressAt(place_);
  absl::MutexLock lock(&mutex_);
  // A channel that has failed lets calls fail at once while it tries again, so that nobody drives its handshakes, which
  // then take longer than they may. Calls on a new one wait for them. One that still connects is let go on.
  const bool shakes_hands = protection_ != nullptr && protection_->credentials != nullptr;
  const bool stuck = shakes_hands && channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (address.empty() || (address == address_ && !stuck)) return;
  if (!address_.empty() && address != address_) log::Info(place_, " says ", address, " now");
  address_ = address;
  channel_ = ControlChannel(address, protection_);
}

}  // namespace slackline::rpc
