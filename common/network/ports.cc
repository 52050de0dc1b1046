#include "common/network/ports.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace slackline::network {
namespace {

constexpr size_t kShownMax = 100;
// At one port that looks free each time.
constexpr int kListenAttempts = 3;

bool ReadPort(const std::string& text, uint16_t& port) {
  uint32_t number = 0;
  if (text.empty() || text.size() > 5 || !absl::ascii_isdigit(text.front()) || !absl::SimpleAtoi(text, &number))
    return false;
  port = static_cast<uint16_t>(number);
  return number >= 1 && number <= UINT16_MAX;
}

enum class Look { kFree, kTaken, kUnknown };

// Whether a server could listen there now, as gRPC and the HTTP server would. kUnavailable where it never can.
absl::StatusOr<Look> LookAt(const std::string& host, uint16_t port) {
  std::string name = host;
  if (name.size() > 2 && name.front() == '[') name = name.substr(1, name.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // Names are what the server makes of them.
  if (::getaddrinfo(name.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) return Look::kUnknown;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  const int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return Look::kUnknown;
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound = ::bind(socket, found->ai_addr, found->ai_addrlen) == 0;
  const int error = errno;
  ::close(socket);
  if (bound) return Look::kFree;
  if (error == EADDRINUSE) return Look::kTaken;
  return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ":", port, ": ", ::strerror(error)));
}

}  // namespace

absl::StatusOr<PortRange> ParsePortRange(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '-');
  PortRange range;
  if (parts.size() == 2 && ReadPort(parts[0], range.low) && ReadPort(parts[1], range.high) && range.low <= range.high)
    return range;
  return absl::InvalidArgumentError(
      absl::StrCat("found '", absl::Utf8SafeCEscape(text.substr(0, kShownMax)),
                   "'; allowed is LOW-HIGH, two ports from 1 to 65535, the lower one first, such as 40000-40199"));
}

absl::StatusOr<uint32_t> CountFreePorts(const std::string& host, PortRange range, uint32_t enough) {
  uint32_t free = 0;
  for (uint32_t port = range.low; port <= range.high && free < enough; ++port) {
    const absl::StatusOr<Look> look = LookAt(host, static_cast<uint16_t>(port));
    if (!look.ok()) return look.status();
    free += *look != Look::kTaken;
  }
  return free;
}

uint32_t AnyFirst() {
  std::random_device random;
  return random();
}

absl::StatusOr<uint16_t> TakePort(const std::string& host, PortRange range, uint32_t first,
                                  const std::function<absl::Status(uint16_t port)>& listen) {
  for (uint32_t tried = 0; tried < range.size(); ++tried) {
    const uint16_t port = static_cast<uint16_t>(range.low + (uint64_t{first} + tried) % range.size());
    absl::StatusOr<Look> look = LookAt(host, port);
    // Somebody may have been faster, and may be gone again.
    for (int attempts = 0; look.ok() && *look != Look::kTaken; look = LookAt(host, port)) {
      const absl::Status listens = listen(port);
      if (listens.ok()) return port;
      if (++attempts == kListenAttempts) return listens;
    }
    if (!look.ok()) return look.status();
  }
  return absl::ResourceExhaustedError(absl::StrCat("found no free port on ", host, ": all ", range.size(),
                                                   " of network.ports (", range.low, "-", range.high,
                                                   ") were tried; allowed is a range with one that nobody uses"));
}

}  // namespace slackline::network
