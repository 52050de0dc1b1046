#include "common/shm/descriptor_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/shm/descriptor_socket.h"
#include "common/time/clock.h"

namespace slackline::shm {
namespace {

constexpr int kBacklog = 128;
// When the process has no descriptor left, accept() fails and the socket stays readable: look again after this long.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

absl::Status CheckReply(const DescriptorReply& reply) {
  if (reply.message.size() > kMessageBytesMax) {
    return absl::InternalError(
        absl::StrCat("the reply has ", reply.message.size(), " bytes; allowed are ", kMessageBytesMax));
  }
  if (reply.descriptors.size() > kReplyDescriptorsMax) {
    return absl::InternalError(
        absl::StrCat("the reply has ", reply.descriptors.size(), " descriptors; allowed are ", kReplyDescriptorsMax));
  }
  return absl::OkStatus();
}

// A reply on its way out, packet by packet.
class Outgoing {
 public:
  explicit Outgoing(absl::StatusOr<DescriptorReply> reply) {
    if (reply.ok()) {
      reply_ = *std::move(reply);
    } else {
      code_ = static_cast<uint32_t>(reply.status().code());
      reply_.message = std::string(reply.status().message().substr(0, kMessageBytesMax));
    }
  }

  // Sends what the socket takes. kDeadlineExceeded: not all yet.
  absl::Status Send(int socket) {
    do {
      std::vector<int> borrowed;
      const auto rest = absl::MakeConstSpan(reply_.descriptors).subspan(descriptors_sent_);
      for (const SharedDescriptor& descriptor : rest.first(std::min(rest.size(), kPacketDescriptorsMax))) {
        borrowed.push_back(descriptor->get());
      }
      const auto left = static_cast<uint32_t>(rest.size() - borrowed.size());
      const absl::string_view message = descriptors_sent_ == 0 ? reply_.message : absl::string_view();
      absl::Status status = SendPacket(socket, {.code = code_, .descriptors_left = left}, message, borrowed);
      if (!status.ok()) return status;
      descriptors_sent_ += borrowed.size();
    } while (descriptors_sent_ < reply_.descriptors.size());
    return absl::OkStatus();
  }

 private:
  uint32_t code_ = 0;
  DescriptorReply reply_;
  size_t descriptors_sent_ = 0;
};

// One peer: first its request comes in, then the reply goes out.
class Connection {
 public:
  Connection(Descriptor socket, absl::Time deadline) : socket_(std::move(socket)), deadline_(deadline) {}

  int socket() const { return socket_.get(); }
  short events() const { return outgoing_ ? POLLOUT : POLLIN; }
  absl::Time deadline() const { return deadline_; }
  bool done() const { return done_; }

  // Goes on as far as the socket lets it.
  void Advance(const DescriptorHandler& handler) {
    if (!outgoing_) Receive(handler);
    if (outgoing_) Send();
  }

 private:
  void Receive(const DescriptorHandler& handler) {
    absl::StatusOr<Packet> packet = ReceivePacket(socket_.get(), kRequestDescriptorsMax);
    if (absl::IsDeadlineExceeded(packet.status())) return;
    done_ = absl::IsUnavailable(packet.status());
    if (!done_) outgoing_.emplace(Answer(std::move(packet), handler));
  }

  // The request is read before its sender is refused: closing a socket with unread data would take the refusal away.
  absl::StatusOr<DescriptorReply> Answer(absl::StatusOr<Packet> packet, const DescriptorHandler& handler) const {
    if (absl::Status status = CheckSameUser(socket_.get()); !status.ok()) return status;
    if (!packet.ok()) return packet.status();
    absl::StatusOr<DescriptorReply> reply = handler({std::move(packet->message), std::move(packet->descriptors)});
    if (!reply.ok()) return reply;
    if (absl::Status status = CheckReply(*reply); !status.ok()) return status;
    return reply;
  }

  void Send() {
    absl::Status status = outgoing_->Send(socket_.get());
    if (absl::IsDeadlineExceeded(status)) return;
    // Too many are on their way. The peer may ask again later.
    if (absl::IsResourceExhausted(status)) static_cast<void>(Outgoing(std::move(status)).Send(socket_.get()));
    done_ = true;
  }

  Descriptor socket_;
  absl::Time deadline_;
  std::optional<Outgoing> outgoing_;
  bool done_ = false;
};

// What the thread works on.
class Loop {
 public:
  Loop(const DescriptorListenerOptions& options, const DescriptorHandler& handler, int listening)
      : options_(options), handler_(handler), listening_(listening) {}

  // Waits for something to do and does it. False once `wake` is readable.
  bool Turn(int wake) {
    const bool accepting = connections_.size() < options_.connections_max && time_.Now() >= accept_from_;
    std::vector<pollfd> waits = {{wake, POLLIN, 0}, {accepting ? listening_ : -1, POLLIN, 0}};
    for (const Connection& connection : connections_) waits.push_back({connection.socket(), connection.events(), 0});
    const int ready = ::poll(waits.data(), waits.size(), TimeoutMs());
    if (ready < 0) return errno == EINTR || errno == ENOMEM;
    if (waits[0].revents != 0) return false;
    for (size_t index = 0; index < connections_.size(); ++index) {
      if (waits[index + 2].revents != 0) connections_[index].Advance(handler_);
    }
    const absl::Time now = time_.Now();
    std::erase_if(connections_, [&](const Connection& peer) { return peer.done() || peer.deadline() <= now; });
    if (waits[1].revents != 0) Accept(now);
    return true;
  }

 private:
  // Until the next deadline; -1 when there is none.
  int TimeoutMs() const {
    const absl::Time now = time_.Now();
    absl::Time next = accept_from_ > now ? accept_from_ : absl::InfiniteFuture();
    for (const Connection& connection : connections_) next = std::min(next, connection.deadline());
    if (next == absl::InfiniteFuture()) return -1;
    const int64_t left_ms = absl::ToInt64Milliseconds(absl::Ceil(next - now, absl::Milliseconds(1)));
    return static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000));
  }

  void Accept(absl::Time now) {
    while (connections_.size() < options_.connections_max) {
      Descriptor socket(::accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.valid()) {
        const bool nobody_waits = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
        if (!nobody_waits) accept_from_ = now + kAcceptPause;
        return;
      }
      connections_.emplace_back(std::move(socket), now + options_.peer_timeout);
    }
  }

  const DescriptorListenerOptions& options_;
  const DescriptorHandler& handler_;
  const int listening_;
  const SteadyTime time_;
  std::vector<Connection> connections_;
  absl::Time accept_from_ = absl::InfinitePast();
};

absl::StatusOr<Descriptor> Listen(const std::string& name) {
  const absl::StatusOr<AbstractAddress> address = MakeAbstractAddress(name);
  if (!address.ok()) return address.status();
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return absl::ErrnoToStatus(errno, "cannot make a socket");
  if (::bind(socket.get(), address->get(), address->bytes) != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError(absl::StrCat("somebody listens at ", name));
    return absl::ErrnoToStatus(errno, "cannot name a socket");
  }
  if (::listen(socket.get(), kBacklog) != 0) return absl::ErrnoToStatus(errno, "cannot listen");
  return socket;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DescriptorListener>> DescriptorListener::Start(const DescriptorListenerOptions& options,
                                                                              DescriptorHandler handler) {
  SLACKLINE_CHECK(options.connections_max > 0 && options.peer_timeout > absl::ZeroDuration());
  DescriptorListenerOptions named = options;
  if (named.name.empty()) {
    absl::StatusOr<std::string> name = RandomAbstractName();
    if (!name.ok()) return name.status();
    named.name = *std::move(name);
  }
  absl::StatusOr<Descriptor> listening = Listen(named.name);
  if (!listening.ok()) return listening.status();
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::ErrnoToStatus(errno, "cannot make an eventfd");
  return std::unique_ptr<DescriptorListener>(
      new DescriptorListener(std::move(named), std::move(handler), {*std::move(listening), std::move(wake)}));
}

DescriptorListener::DescriptorListener(DescriptorListenerOptions options, DescriptorHandler handler, Sockets sockets)
    : options_(std::move(options)),
      handler_(std::move(handler)),
      sockets_(std::move(sockets)),
      thread_([this] { Run(); }) {}

DescriptorListener::~DescriptorListener() {
  SLACKLINE_CHECK(::eventfd_write(sockets_.wake.get(), 1) == 0);
  thread_.join();
}

void DescriptorListener::Run() {
  Loop loop(options_, handler_, sockets_.listening.get());
  while (loop.Turn(sockets_.wake.get())) {
  }
}

}  // namespace slackline::shm
