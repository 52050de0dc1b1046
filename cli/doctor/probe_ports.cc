#include "cli/doctor/probe_ports.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/network/interfaces.h"

namespace slackline::cli::doctor {
namespace {

absl::Status TryListening(const std::string& host, uint32_t port) {
  std::string name = host;
  if (name.size() > 2 && name.front() == '[') name = name.substr(1, name.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), absl::StrCat(port).c_str(), &hints, &found); error != 0) {
    return absl::NotFoundError(absl::StrCat("found no address for '", host, "': ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("socket: ", ::strerror(errno)));
  // As servers do: a port whose last owner has just ended is free.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  absl::Status status;
  if (::bind(fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd, 1) != 0) {
    status = absl::UnavailableError(absl::StrCat(host, ":", port, ": ", ::strerror(errno)));
  }
  ::close(fd);
  return status;
}

struct PortRange {
  uint32_t low = 0;
  uint32_t high = 0;
};

// The reader of job files says what is wrong with one; here it is only empty then.
std::optional<PortRange> RangeOf(const std::string& text) {
  const std::vector<std::string> ends = absl::StrSplit(text, '-');
  PortRange range;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &range.low) || !absl::SimpleAtoi(ends[1], &range.high) ||
      range.low == 0 || range.high > 65535 || range.high < range.low) {
    return std::nullopt;
  }
  return range;
}

}  // namespace

PortFacts ProbePorts(const job::Network& network, uint32_t needed) {
  PortFacts facts;
  std::string host = network.listen();
  if (!network.interface().empty()) {
    const absl::StatusOr<std::vector<network::InterfaceAddress>> here = network::InterfaceAddresses();
    const absl::StatusOr<std::string> chosen = here.ok() ? network::Choose(*here, network.interface()) : here.status();
    facts.listening = chosen.status();
    if (!chosen.ok()) return facts;
    host = *chosen;
  }
  facts.address = network.advertise().empty() ? host : network.advertise();
  facts.listening = TryListening(host, 0);
  if (!facts.listening.ok()) return facts;
  if (network.metrics() && network.metrics_port() != 0) facts.metrics_port = TryListening(host, network.metrics_port());
  if (const std::optional<PortRange> range = RangeOf(network.ports())) {
    facts.range_size = range->high - range->low + 1;
    for (uint32_t port = range->low; port <= range->high && facts.range_free < needed; ++port) {
      if (TryListening(host, port).ok()) ++facts.range_free;
    }
  }
  return facts;
}

}  // namespace slackline::cli::doctor
