#include "common/shm/descriptor_exchange.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/shm/descriptor_socket.h"
#include "common/time/clock.h"

namespace slackline::shm {
namespace {

absl::Status CheckRequest(absl::string_view message, absl::Span<const int> descriptors) {
  if (message.size() > kMessageBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", message.size(), " bytes; allowed are ", kMessageBytesMax));
  }
  if (descriptors.size() > kRequestDescriptorsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request has ", descriptors.size(), " descriptors; allowed are ", kRequestDescriptorsMax));
  }
  return absl::OkStatus();
}

// One connection; every call ends at the deadline.
class Call {
 public:
  Call(absl::string_view name, absl::Duration timeout) : name_(name), timeout_(timeout) {}

  absl::Status Connect(const AbstractAddress& address) {
    socket_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) return absl::ErrnoToStatus(errno, "cannot make a socket");
    int result;
    do {
      if (absl::Status status = LimitWait(SO_SNDTIMEO); !status.ok()) return status;
      result = ::connect(socket_.get(), address.get(), address.bytes);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return CheckSameUser(socket_.get());
    if (errno == EAGAIN) return TimedOut();
    const int error = errno;
    return absl::UnavailableError(absl::ErrnoToStatus(error, absl::StrCat("nobody listens at ", name_)).message());
  }

  absl::Status Send(absl::string_view message, absl::Span<const int> descriptors) {
    if (absl::Status status = LimitWait(SO_SNDTIMEO); !status.ok()) return status;
    return Name(SendPacket(socket_.get(), {}, message, descriptors));
  }

  absl::StatusOr<Packet> Receive() {
    if (absl::Status status = LimitWait(SO_RCVTIMEO); !status.ok()) return status;
    absl::StatusOr<Packet> packet = ReceivePacket(socket_.get(), kPacketDescriptorsMax);
    if (!packet.ok()) return Name(packet.status());
    return packet;
  }

 private:
  // Lets the next call wait for what is left of the time.
  absl::Status LimitWait(int option) {
    const absl::Duration left = deadline_ - time_.Now();
    const timeval limit = absl::ToTimeval(left);
    // Zero would mean: for ever.
    if (left <= absl::ZeroDuration() || (limit.tv_sec == 0 && limit.tv_usec == 0)) return TimedOut();
    if (::setsockopt(socket_.get(), SOL_SOCKET, option, &limit, sizeof(limit)) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "cannot limit the wait of a socket");
  }
  absl::Status TimedOut() const {
    return absl::DeadlineExceededError(absl::StrCat("no answer from ", name_, " within ", FormatDuration(timeout_)));
  }
  absl::Status Name(const absl::Status& status) const {
    if (status.ok()) return status;
    if (absl::IsDeadlineExceeded(status)) return TimedOut();
    return absl::Status(status.code(), absl::StrCat(name_, ": ", status.message()));
  }

  const absl::string_view name_;
  const absl::Duration timeout_;
  const SteadyTime time_;
  const absl::Time deadline_ = time_.Now() + timeout_;
  Descriptor socket_;
};

// Adds a packet's descriptors, if they are as many as were promised.
absl::Status Append(Packet packet, size_t* left, DescriptorMessage& answer) {
  const size_t found = packet.descriptors.size() + packet.header.descriptors_left;
  if (found > kReplyDescriptorsMax || (left != nullptr && (packet.descriptors.empty() || found != *left))) {
    return absl::InvalidArgumentError(absl::StrCat("the answer announces ", found, " descriptors; allowed are ",
                                                   left == nullptr ? kReplyDescriptorsMax : *left));
  }
  std::move(packet.descriptors.begin(), packet.descriptors.end(), std::back_inserter(answer.descriptors));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DescriptorMessage> Exchange(absl::string_view name, absl::string_view message,
                                           absl::Span<const int> descriptors, absl::Duration timeout) {
  const absl::StatusOr<AbstractAddress> address = MakeAbstractAddress(name);
  if (!address.ok()) return address.status();
  if (absl::Status status = CheckRequest(message, descriptors); !status.ok()) return status;
  Call call(name, timeout);
  if (absl::Status status = call.Connect(*address); !status.ok()) return status;
  if (absl::Status status = call.Send(message, descriptors); !status.ok()) return status;

  DescriptorMessage answer;
  size_t left = 0;
  do {
    absl::StatusOr<Packet> packet = call.Receive();
    if (!packet.ok()) return packet.status();
    const PacketHeader header = packet->header;
    if (header.code != 0) return absl::Status(static_cast<absl::StatusCode>(header.code), packet->message);
    const bool first = left == 0;
    if (first) answer.message = std::move(packet->message);
    if (absl::Status status = Append(*std::move(packet), first ? nullptr : &left, answer); !status.ok()) return status;
    left = header.descriptors_left;
  } while (left > 0);
  return answer;
}

}  // namespace slackline::shm
