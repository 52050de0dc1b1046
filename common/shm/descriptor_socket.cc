#include "common/shm/descriptor_socket.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::shm {
namespace {

constexpr uint32_t kMagic = 0x736c6664;  // "slfd"
constexpr size_t kRandomBytes = 16;

struct WireHeader {
  uint32_t magic = kMagic;
  PacketHeader header;
};
static_assert(sizeof(WireHeader) == 12);

// Room for the kernel's side message. A multiple of the alignment, so that it holds what it says and not one more.
struct alignas(cmsghdr) ControlBuffer {
  std::array<char, CMSG_SPACE(kPacketDescriptorsMax * sizeof(int))> bytes{};
};

absl::Status TransferError(absl::string_view what, int error) {
  const absl::Status status = absl::ErrnoToStatus(error, what);
  switch (error) {
    case EAGAIN:
      return absl::DeadlineExceededError(status.message());
    case EPIPE:
    case ECONNRESET:
      return absl::UnavailableError("the peer has closed the connection");
    case ETOOMANYREFS:
      return absl::ResourceExhaustedError(absl::StrCat(
          status.message(), ": more descriptors are on their way than this user may have open files (ulimit -n)"));
    default:
      return status;
  }
}

void AttachDescriptors(absl::Span<const int> descriptors, ControlBuffer& control, msghdr& message) {
  if (descriptors.empty()) return;
  const size_t bytes = descriptors.size() * sizeof(int);
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* const side = CMSG_FIRSTHDR(&message);
  side->cmsg_level = SOL_SOCKET;
  side->cmsg_type = SCM_RIGHTS;
  side->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(side), descriptors.data(), bytes);
}

// Takes ownership of all that the kernel has opened for us, wanted or not.
std::vector<Descriptor> TakeDescriptors(msghdr& message) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* side = CMSG_FIRSTHDR(&message); side != nullptr; side = CMSG_NXTHDR(&message, side)) {
    if (side->cmsg_level != SOL_SOCKET || side->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (side->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t index = 0; index < count; ++index) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(side) + index * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

// The kernel opens as many as fit into the buffer and drops the others.
absl::Status DescriptorsCut(size_t found, size_t allowed) {
  if (found >= allowed) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", allowed, " descriptors came; allowed are ", allowed));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("only ", found,
                   " of the descriptors that came could be opened: this process is at its limit of open "
                   "files (ulimit -n)"));
}

absl::Status CheckPacket(size_t bytes, int flags, const WireHeader& wire) {
  if ((flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the packet is too long; allowed are ", kMessageBytesMax, " bytes"));
  }
  if (bytes < sizeof(wire) || wire.magic != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat("what came is no packet: ", bytes, " bytes",
                                                   bytes < sizeof(wire) ? "" : " with another beginning"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AbstractAddress> MakeAbstractAddress(absl::string_view name) {
  AbstractAddress result;
  constexpr size_t kNameBytesMax = sizeof(result.address.sun_path) - 1;
  if (name.empty() || name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a socket name has 1 to ", kNameBytesMax, " bytes; this one has ", name.size()));
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

absl::StatusOr<std::string> RandomAbstractName() {
  std::array<char, kRandomBytes> bits;
  if (::getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    return absl::ErrnoToStatus(errno, "cannot get random bits");
  }
  return absl::StrCat("slackline-", absl::BytesToHexString(absl::string_view(bits.data(), bits.size())));
}

absl::Status CheckSameUser(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return absl::ErrnoToStatus(errno, "cannot see who the peer is");
  }
  if (peer.uid == ::geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("process ", peer.pid, " runs as user ", peer.uid,
                                                  "; memory is shared with processes of user ", ::geteuid(), " only"));
}

absl::Status SendPacket(int socket, const PacketHeader& header, absl::string_view message,
                        absl::Span<const int> descriptors) {
  SLACKLINE_CHECK(message.size() <= kMessageBytesMax && descriptors.size() <= kPacketDescriptorsMax);
  WireHeader wire{.header = header};
  std::array<iovec, 2> pieces = {iovec{&wire, sizeof(wire)}, iovec{const_cast<char*>(message.data()), message.size()}};
  ControlBuffer control;
  msghdr packet{};
  packet.msg_iov = pieces.data();
  packet.msg_iovlen = pieces.size();
  AttachDescriptors(descriptors, control, packet);
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &packet, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? TransferError("cannot send a packet", errno) : absl::OkStatus();
}

absl::StatusOr<Packet> ReceivePacket(int socket, size_t descriptors_max) {
  SLACKLINE_CHECK(descriptors_max <= kPacketDescriptorsMax);
  WireHeader wire{};
  wire.magic = 0;
  Packet result;
  result.message.resize(kMessageBytesMax);
  std::array<iovec, 2> pieces = {iovec{&wire, sizeof(wire)}, iovec{result.message.data(), result.message.size()}};
  ControlBuffer control;
  msghdr packet{};
  packet.msg_iov = pieces.data();
  packet.msg_iovlen = pieces.size();
  packet.msg_control = control.bytes.data();
  packet.msg_controllen = CMSG_LEN(descriptors_max * sizeof(int));
  ssize_t received;
  do {
    received = ::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return TransferError("no packet came", errno);

  result.descriptors = TakeDescriptors(packet);
  if (received == 0) return absl::UnavailableError("the peer has closed the connection");
  const auto bytes = static_cast<size_t>(received);
  if (absl::Status status = CheckPacket(bytes, packet.msg_flags, wire); !status.ok()) return status;
  if ((packet.msg_flags & MSG_CTRUNC) != 0) return DescriptorsCut(result.descriptors.size(), descriptors_max);
  result.header = wire.header;
  result.message.resize(bytes - sizeof(wire));
  return result;
}

}  // namespace slackline::shm
