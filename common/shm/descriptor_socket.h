// Sends descriptors with a small message over an abstract Unix socket (a name that is in no file system and disappears
// with its process). DescriptorListener and Exchange() are built on it.
//
//   request = packet                          code 0, at most 16 descriptors
//   reply   = packet packet*                  the first has the message, each at most 128 descriptors
//   packet  = magic code descriptors_left message
//   magic, code, descriptors_left = u32       in the machine's byte order: it stays on the machine
//
// `code` is an absl::StatusCode. If it is not 0, `message` gives the reason and no packet follows. `descriptors_left`
// counts the descriptors in the packets that follow; the reply ends when it is 0. The descriptors travel beside the
// packet (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/shm/descriptor.h"

namespace slackline::shm {

inline constexpr size_t kMessageBytesMax = 64 << 10;
inline constexpr size_t kRequestDescriptorsMax = 16;
// A reply carries one descriptor for each shard of a server.
inline constexpr size_t kReplyDescriptorsMax = 1024;
// Less than the 253 that the kernel accepts at once.
inline constexpr size_t kPacketDescriptorsMax = 128;

struct PacketHeader {
  uint32_t code = 0;
  uint32_t descriptors_left = 0;
};

struct Packet {
  PacketHeader header;
  std::string message;
  std::vector<Descriptor> descriptors;
};

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Returns the address of an abstract name, which is given without its leading zero byte.
//   kInvalidArgument  the name is empty or has more than 107 bytes
absl::StatusOr<AbstractAddress> MakeAbstractAddress(absl::string_view name);

// Returns "slackline-" and 128 random bits. Nobody can guess the name or take it first.
absl::StatusOr<std::string> RandomAbstractName();

// Returns kPermissionDenied unless the process at the other end runs as the same user.
absl::Status CheckSameUser(int socket);

// Sends one packet as a whole, or nothing.
//   kDeadlineExceeded   the socket would block, or its SO_SNDTIMEO has passed
//   kUnavailable        the peer is gone
//   kResourceExhausted  too many descriptors of this user are on their way
// Requires: at most kMessageBytesMax bytes of message and kPacketDescriptorsMax descriptors.
absl::Status SendPacket(int socket, const PacketHeader& header, absl::string_view message,
                        absl::Span<const int> descriptors);

// Receives one packet. Descriptors of a refused packet are closed.
//   kDeadlineExceeded   the socket would block, or its SO_RCVTIMEO has passed
//   kUnavailable        the peer is gone
//   kInvalidArgument    the bytes are not a packet, or too long, or have more than `descriptors_max` descriptors
//   kResourceExhausted  this process may not open as many files as the packet has
// Requires: descriptors_max <= kPacketDescriptorsMax.
absl::StatusOr<Packet> ReceivePacket(int socket, size_t descriptors_max);

}  // namespace slackline::shm
