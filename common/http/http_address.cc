#include "common/http/http_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace slackline {
namespace {

constexpr size_t kAddressShownMax = 100;
constexpr absl::string_view kServerPrefixes[] = {kHttpPrefix, "https://", "ftp://"};
constexpr char kAllowedAddress[] = "an address such as https://files.example.org/FOLDER, or one with http:// or ftp://";

absl::Status RefuseAddress(absl::string_view found, absl::string_view allowed = kAllowedAddress) {
  return absl::InvalidArgumentError(absl::StrCat("found ", found, "; allowed is ", allowed));
}

// What stands before an '@' may be a password, however it was meant.
std::string InQuotes(absl::string_view text) {
  const size_t at = text.rfind('@'), scheme = text.find("://");
  const size_t begin = scheme == absl::string_view::npos || scheme > at ? 0 : scheme + 3;
  const std::string shown =
      at == absl::string_view::npos ? std::string(text) : absl::StrCat(text.substr(0, begin), "...", text.substr(at));
  return absl::StrCat("'", absl::Utf8SafeCEscape(absl::string_view(shown).substr(0, kAddressShownMax)), "'");
}

bool IsIpv6(absl::string_view host) {
  in6_addr parsed;
  const std::string without_zone(host.substr(0, host.find('%')));
  return ::inet_pton(AF_INET6, without_zone.c_str(), &parsed) == 1;
}

bool IsIpv4(absl::string_view host) {
  in_addr parsed;
  return ::inet_pton(AF_INET, std::string(host).c_str(), &parsed) == 1;
}

bool IsNameOrIpv4(absl::string_view host) {
  if (host.empty() || host.front() == '.' || host.front() == '-' || absl::StrContains(host, "..")) return false;
  if (host.find_first_not_of("0123456789.") == absl::string_view::npos) return IsIpv4(host);
  return std::all_of(host.begin(), host.end(), [](char letter) {
    return absl::ascii_isalnum(static_cast<unsigned char>(letter)) || static_cast<unsigned char>(letter) >= 0x80 ||
           letter == '.' || letter == '-' || letter == '_';
  });
}

bool IsServerPort(absl::string_view port) {
  uint32_t number = 0;
  return !port.empty() && absl::c_all_of(port, absl::ascii_isdigit) && absl::SimpleAtoi(port, &number) && number >= 1 &&
         number <= UINT16_MAX;
}

absl::Status CheckServer(absl::string_view server, absl::string_view address) {
  const std::string in = absl::StrCat(" in ", InQuotes(address));
  absl::string_view host = server, port;
  bool has_port = false;
  const size_t colon =
      server.front() == '[' ? server.find(':', std::min(server.find(']'), server.size() - 1)) : server.find(':');
  if (colon != absl::string_view::npos) {
    has_port = true;
    host = server.substr(0, colon);
    port = server.substr(colon + 1);
  }
  if (host.empty()) return RefuseAddress(absl::StrCat(InQuotes(address), " without a host"));
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (bracketed ? !IsIpv6(host.substr(1, host.size() - 2)) : !IsNameOrIpv4(host)) {
    return RefuseAddress(absl::StrCat("the host ", InQuotes(host), in),
                         "a name (files.example.org), an IPv4 address (192.0.2.1) or an IPv6 address in brackets "
                         "([2001:db8::1])");
  }
  if (has_port && !IsServerPort(port)) {
    return RefuseAddress(absl::StrCat("the port ", InQuotes(port), in), "1 to 65535, or none, which is the usual one");
  }
  return absl::OkStatus();
}

absl::Status CheckFolder(absl::string_view folder, absl::string_view address) {
  for (size_t i = 0; i < folder.size(); ++i) {
    const char letter = folder[i];
    if (letter == '%') {
      const absl::string_view code = folder.substr(i + 1, 2);
      if (code.size() == 2 && absl::c_all_of(code, absl::ascii_isxdigit)) continue;
      return RefuseAddress(absl::StrCat(InQuotes(folder.substr(i, 3)), " in ", InQuotes(address)),
                           "% with two hexadecimal digits; the sign itself is %25");
    }
    if (absl::ascii_isgraph(static_cast<unsigned char>(letter)) || static_cast<unsigned char>(letter) >= 0x80) continue;
    return RefuseAddress(
        absl::StrCat(letter == ' ' ? "a space" : InQuotes(folder.substr(i, 1)), " in ", InQuotes(address)),
        letter == ' ' ? "%20 in its place" : "letters, digits and signs, others as %XX");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsAddress(absl::string_view path) {
  if (absl::StartsWithIgnoreCase(path, "http:") || absl::StartsWithIgnoreCase(path, "https:")) return true;
  const size_t scheme = path.find("://");
  return scheme != absl::string_view::npos && path.find('/') > scheme;
}

bool IsFileServer(absl::string_view path) {
  return absl::c_any_of(kServerPrefixes, [&](absl::string_view prefix) { return absl::StartsWith(path, prefix); });
}

absl::Status CheckServerAddress(absl::string_view address) {
  const size_t scheme_end = address.find("://") + 3;
  const absl::string_view scheme = address.substr(0, scheme_end), rest = address.substr(scheme_end);
  const absl::string_view server = rest.substr(0, rest.find_first_of("/?#"));
  const absl::string_view behind = rest.substr(server.size());
  if (const size_t at = server.rfind('@'); at != absl::string_view::npos) {
    return RefuseAddress(
        absl::StrCat("a user before '@' in ", InQuotes(absl::StrCat(scheme, "...", server.substr(at), behind))),
        absl::StrCat(kAllowedAddress, ": nobody logs in there, and job files are kept with runs"));
  }
  if (server.empty()) return RefuseAddress(absl::StrCat(InQuotes(address), " without a host"));
  if (absl::Status checked = CheckServer(server, address); !checked.ok()) return checked;
  if (const size_t end = behind.find_first_of("?#"); end != absl::string_view::npos) {
    return RefuseAddress(
        absl::StrCat(behind[end] == '?' ? "a query ('?') in " : "a fragment ('#') in ", InQuotes(address)),
        absl::StrCat(kAllowedAddress, ", whose files are asked for by their names; in a name ",
                     behind[end] == '?' ? "? is %3F" : "# is %23"));
  }
  return CheckFolder(behind, address);
}

}  // namespace slackline
