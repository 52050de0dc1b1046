#include "ps/service/connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/shm/descriptor.h"

namespace slackline::ps {
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

// Whether a socket with this address of its own belongs to the listening ones.
bool Belongs(const sockaddr_storage& own, socklen_t bytes, const Listening& listening) {
  if (own.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(own).sin_port) == listening.port;
  }
  if (own.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(own).sin6_port) == listening.port;
  }
  // An abstract name begins with a zero byte and has no end but its length.
  constexpr size_t kBegin = offsetof(sockaddr_un, sun_path) + 1;
  if (own.ss_family != AF_UNIX || bytes <= kBegin || listening.socket.empty()) return false;
  const auto& local = reinterpret_cast<const sockaddr_un&>(own);
  return local.sun_path[0] == 0 && absl::string_view(local.sun_path + 1, bytes - kBegin) == listening.socket;
}

bool IsConnectionTo(const Listening& listening, int socket) {
  sockaddr_storage own{}, peer{};
  socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
         Belongs(own, own_bytes, listening);
}

}  // namespace

int CutConnections(const Listening& listening) {
  int cut = 0;
  for (const int number : OpenDescriptors()) {
    // Ours stays the same socket when gRPC closes its own meanwhile and the number is used again.
    const shm::Descriptor socket(::fcntl(number, F_DUPFD_CLOEXEC, 0));
    if (!socket.valid() || !IsConnectionTo(listening, socket.get())) continue;
    cut += ::shutdown(socket.get(), SHUT_RDWR) == 0;
  }
  return cut;
}

}  // namespace slackline::ps
