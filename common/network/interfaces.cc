#include "common/network/interfaces.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/address.h"

namespace slackline::network {
namespace {

constexpr size_t kTextMax = 100;

// Numeric text of an IPv4 or [IPv6] address; empty for others, and for those of one link only.
std::string Text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&six)) return "";
    ::inet_ntop(AF_INET6, &six, text, sizeof(text));
    return absl::StrCat("[", text, "]");
  }
  return text;
}

// Network byte order; empty where `text` is no numeric address.
std::string Bytes(std::string text) {
  if (text.size() > 2 && text.front() == '[') text = text.substr(1, text.size() - 2);
  char bytes[sizeof(in6_addr)];
  if (::inet_pton(AF_INET, text.c_str(), bytes) == 1) return std::string(bytes, sizeof(in_addr));
  if (::inet_pton(AF_INET6, text.c_str(), bytes) == 1) return std::string(bytes, sizeof(in6_addr));
  return "";
}

bool SamePrefix(const std::string& one, const std::string& other, uint32_t bits) {
  if (one.size() != other.size()) return false;
  const size_t whole = bits / 8;
  if (one.compare(0, whole, other, 0, whole) != 0) return false;
  if (bits % 8 == 0) return true;
  const uint8_t mask = static_cast<uint8_t>(0xff << (8 - bits % 8));
  return ((static_cast<uint8_t>(one[whole]) ^ static_cast<uint8_t>(other[whole])) & mask) == 0;
}

// What a name stands for; the first that is no loopback address, if there is one. Empty for an unknown name.
std::string LookUp(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  std::string first;
  for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
    const std::string text = Text(next->ai_addr);
    if (text.empty()) continue;
    if (!IsLoopback(text)) return text;
    if (first.empty()) first = text;
  }
  return first;
}

// What an interface is chosen by.
struct Wanted {
  // Network byte order; empty: by its name.
  std::string network;
  uint32_t bits = 0;
};

absl::StatusOr<Wanted> ReadWanted(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  Wanted wanted;
  bool fits = !text.empty() && text.size() < kTextMax;
  for (const char letter : text) fits = fits && absl::ascii_isgraph(letter);
  if (parts.size() == 1) {
    // IFNAMSIZ counts the zero at the end.
    fits = fits && text.size() < IFNAMSIZ;
  } else {
    wanted.network = Bytes(parts[0]);
    fits = fits && parts.size() == 2 && !wanted.network.empty() && !parts[1].empty() &&
           absl::ascii_isdigit(parts[1].front()) && absl::SimpleAtoi(parts[1], &wanted.bits) &&
           wanted.bits <= 8 * wanted.network.size();
  }
  if (fits) return wanted;
  return absl::InvalidArgumentError(
      absl::StrCat("found '", absl::Utf8SafeCEscape(text.substr(0, kTextMax)),
                   "'; allowed is the name of a network interface (ib0), or a network such as 10.1.0.0/16"));
}

}  // namespace

absl::StatusOr<std::vector<InterfaceAddress>> InterfaceAddresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot list the network interfaces: ", ::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* next = first; next != nullptr; next = next->ifa_next) {
    if (next->ifa_addr == nullptr || (next->ifa_flags & IFF_UP) == 0) continue;
    if (std::string text = Text(next->ifa_addr); !text.empty()) addresses.push_back({next->ifa_name, text});
  }
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const InterfaceAddress& a) { return a.address.find(':') == std::string::npos; });
  return addresses;
}

std::string Resolved(const std::string& host) { return Bytes(host).empty() ? LookUp(host) : host; }

absl::Status CheckInterface(const std::string& wanted) { return ReadWanted(wanted).status(); }

absl::StatusOr<std::string> Choose(const std::vector<InterfaceAddress>& addresses, const std::string& wanted) {
  const absl::StatusOr<Wanted> read = ReadWanted(wanted);
  if (!read.ok()) return read.status();
  for (const InterfaceAddress& candidate : addresses) {
    const bool fits = read->network.empty() ? candidate.interface == wanted
                                            : SamePrefix(read->network, Bytes(candidate.address), read->bits);
    if (fits) return candidate.address;
  }
  return absl::NotFoundError(
      absl::StrCat("found no network interface ", wanted, "; here are ",
                   absl::StrJoin(addresses, ", ", [](std::string* out, const InterfaceAddress& candidate) {
                     absl::StrAppend(out, candidate.interface, " (", candidate.address, ")");
                   })));
}

absl::StatusOr<std::string> AddressOfInterface(const std::string& wanted) {
  const absl::StatusOr<std::vector<InterfaceAddress>> addresses = InterfaceAddresses();
  if (!addresses.ok()) return addresses.status();
  return Choose(*addresses, wanted);
}

absl::StatusOr<std::string> AddressOfNode(const std::string& node, const std::string& wanted) {
  if (!wanted.empty()) return AddressOfInterface(wanted);
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof(host) - 1);
  for (const std::string& name : {node, std::string(host)}) {
    const std::string address = LookUp(name);
    if (!address.empty() && !IsLoopback(address)) return address;
  }
  return "127.0.0.1";
}

}  // namespace slackline::network
