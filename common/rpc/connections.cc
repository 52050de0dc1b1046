#include "common/rpc/connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/shm/descriptor.h"

namespace slackline::rpc {
namespace {

std::vector<int> OpenDescriptors() {
  std::vector<int> descriptors;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (folder == nullptr) return descriptors;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] != '.') descriptors.push_back(std::atoi(entry->d_name));
  }
  return descriptors;
}

struct Address {
  sockaddr_storage storage = {};
  socklen_t bytes = sizeof(sockaddr_storage);

  template <typename Socket>
  const Socket& as() const {
    return reinterpret_cast<const Socket&>(storage);
  }
  // Of a Unix socket: it begins with a zero byte, and has no end but its length. Empty for others.
  absl::string_view abstract_name() const {
    constexpr size_t kBegin = offsetof(sockaddr_un, sun_path) + 1;
    if (storage.ss_family != AF_UNIX || bytes <= kBegin || as<sockaddr_un>().sun_path[0] != 0) return {};
    return {as<sockaddr_un>().sun_path + 1, bytes - kBegin};
  }
};

// Both ends of a connection.
struct Ends {
  Address own;
  Address peer;
};

bool FindEnds(int socket, Ends& ends) {
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&ends.own.storage), &ends.own.bytes) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&ends.peer.storage), &ends.peer.bytes) == 0;
}

bool Belongs(const Address& own, const Listening& listening) {
  switch (own.storage.ss_family) {
    case AF_INET:
      return ntohs(own.as<sockaddr_in>().sin_port) == listening.port;
    case AF_INET6:
      return ntohs(own.as<sockaddr_in6>().sin6_port) == listening.port;
    default:
      return !listening.socket.empty() && own.abstract_name() == listening.socket;
  }
}

// As gRPC names it, but for its percent signs.
std::string NameOf(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  switch (address.storage.ss_family) {
    case AF_INET: {
      const auto& ipv4 = address.as<sockaddr_in>();
      ::inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof(text));
      return absl::StrCat("ipv4:", text, ":", ntohs(ipv4.sin_port));
    }
    case AF_INET6: {
      const auto& ipv6 = address.as<sockaddr_in6>();
      // An IPv4 address in an IPv6 socket.
      if (IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) {
        ::inet_ntop(AF_INET, &ipv6.sin6_addr.s6_addr[12], text, sizeof(text));
        return absl::StrCat("ipv4:", text, ":", ntohs(ipv6.sin6_port));
      }
      ::inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof(text));
      return absl::StrCat("ipv6:[", text, "]:", ntohs(ipv6.sin6_port));
    }
    default:
      return absl::StrCat("unix-abstract:", address.abstract_name());
  }
}

int CutThose(absl::FunctionRef<bool(const Ends&)> wanted) {
  int cut = 0;
  for (const int number : OpenDescriptors()) {
    // Ours stays the same socket when gRPC closes its own meanwhile and the number is used again.
    const shm::Descriptor socket(::fcntl(number, F_DUPFD_CLOEXEC, 0));
    Ends ends;
    if (!socket.valid() || !FindEnds(socket.get(), ends) || !wanted(ends)) continue;
    cut += ::shutdown(socket.get(), SHUT_RDWR) == 0;
  }
  return cut;
}

}  // namespace

int CutConnectionsFrom(const Listening& listening) {
  return CutThose([&](const Ends& ends) { return Belongs(ends.own, listening); });
}

int CutConnectionsTo(const std::string& peer) {
  const std::string wanted = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  return CutThose([&](const Ends& ends) { return NameOf(ends.peer) == wanted; });
}

}  // namespace slackline::rpc
