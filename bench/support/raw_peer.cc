#include "bench/support/raw_peer.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace slackline::bench {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr char kAbstract[] = "unix-abstract:";

bool SendPieces(int descriptor, uint64_t bytes, std::vector<char>& memory) {
  while (bytes > 0) {
    const ssize_t sent = send(descriptor, memory.data(), std::min<uint64_t>(bytes, memory.size()), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes -= static_cast<uint64_t>(sent);
  }
  return true;
}

bool ReceivePieces(int descriptor, uint64_t bytes, std::vector<char>& memory) {
  while (bytes > 0) {
    const ssize_t received = recv(descriptor, memory.data(), std::min<uint64_t>(bytes, memory.size()), 0);
    if (received <= 0) return false;
    bytes -= static_cast<uint64_t>(received);
  }
  return true;
}

// Small rounds must not wait for more to send. Fails on a Unix socket, which never does.
void SendAtOnce(int descriptor) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void ServeConnections(int listener) {
  std::vector<char> memory(kPieceBytes);
  while (true) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection < 0) return;
    SendAtOnce(connection);
    RawRound round;
    if (recv(connection, &round, sizeof(round), MSG_WAITALL) == sizeof(round)) {
      while (ReceivePieces(connection, round.taken_bytes, memory) &&
             SendPieces(connection, round.answered_bytes, memory)) {
      }
    }
    close(connection);
  }
}

sockaddr_in TcpAddress(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  SLACKLINE_CHECK(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1);
  return address;
}

// A name without a file, which is gone with its socket: it begins with a zero byte.
struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    SLACKLINE_CHECK(name.size() < sizeof(address.sun_path));
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

// Returns false when nobody listens there, or when it is no such address.
bool ConnectTo(const std::string& address, int* descriptor) {
  if (absl::StartsWith(address, kAbstract)) {
    const AbstractAddress to{std::string(absl::StripPrefix(address, kAbstract))};
    *descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(*descriptor, to.get(), to.size) == 0;
  }
  *descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  in_addr host{};
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535 ||
      inet_pton(AF_INET, address.substr(0, colon).c_str(), &host) != 1) {
    return false;
  }
  const sockaddr_in to = TcpAddress(address.substr(0, colon), static_cast<uint16_t>(port));
  return connect(*descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawConnection>> RawConnection::Connect(const std::string& address,
                                                                      const RawRound& round) {
  int descriptor = -1;
  const bool connected = ConnectTo(address, &descriptor);
  std::unique_ptr<RawConnection> connection(new RawConnection(descriptor, round));
  if (!connected || send(descriptor, &round, sizeof(round), MSG_NOSIGNAL) != sizeof(round)) {
    return absl::UnavailableError(
        absl::StrCat("found no raw peer at ", address, "; allowed is IPV4:PORT or unix-abstract:NAME"));
  }
  return connection;
}

RawConnection::RawConnection(int descriptor, const RawRound& round)
    : descriptor_(descriptor), round_(round), memory_(kPieceBytes) {
  SendAtOnce(descriptor_);
}

RawConnection::~RawConnection() { close(descriptor_); }

absl::Status RawConnection::Round() {
  if (SendPieces(descriptor_, round_.taken_bytes, memory_) &&
      ReceivePieces(descriptor_, round_.answered_bytes, memory_)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("the raw peer is gone");
}

std::unique_ptr<RawPeer> RawPeer::StartTcp(const std::string& host) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = TcpAddress(host, 0);
  socklen_t size = sizeof(address);
  SLACKLINE_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  return Start(listener, absl::StrCat(host, ":", ntohs(address.sin_port)));
}

std::unique_ptr<RawPeer> RawPeer::StartUnix() {
  const std::string name = absl::StrCat("slackline-bench-", getpid(), "-raw");
  const AbstractAddress address(name);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  SLACKLINE_CHECK(bind(listener, address.get(), address.size) == 0);
  return Start(listener, kAbstract + name);
}

std::unique_ptr<RawPeer> RawPeer::Start(int listener, const std::string& address) {
  SLACKLINE_CHECK(listen(listener, 1) == 0);
  std::unique_ptr<RawPeer> peer(new RawPeer());
  peer->address_ = address;
  peer->child_ = std::make_unique<Child>("the raw peer", [listener](const Channel&) { ServeConnections(listener); });
  close(listener);
  return peer;
}

}  // namespace slackline::bench
