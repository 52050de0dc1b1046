#include "common/base/address.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace slackline {
namespace {

bool IsHost(absl::string_view host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  for (const char letter : host) {
    const bool plain = absl::ascii_isalnum(letter) || letter == '.' || letter == '-' || letter == '_';
    if (!plain && !(bracketed && (letter == ':' || letter == '%'))) return false;
  }
  return !host.empty();
}

bool IsPort(absl::string_view port) {
  uint32_t number = 0;
  return !port.empty() && absl::ascii_isdigit(port.front()) && absl::SimpleAtoi(port, &number) && number <= UINT16_MAX;
}

}  // namespace

std::string AddressMistake(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && IsHost(absl::string_view(text).substr(0, colon)) &&
      IsPort(absl::string_view(text).substr(colon + 1))) {
    return "";
  }
  return absl::StrCat("found '", absl::Utf8SafeCEscape(text), "'; allowed is HOST:PORT");
}

std::string PlaceMistake(const std::string& text) {
  std::error_code error;
  if (std::filesystem::is_directory(text, error)) {
    return absl::StrCat("found the folder '", absl::Utf8SafeCEscape(text),
                        "'; allowed is HOST:PORT, or a file that holds one");
  }
  if (absl::StrContains(text, '/')) return "";
  const std::string mistake = AddressMistake(text);
  return mistake.empty() ? "" : absl::StrCat(mistake, ", or a file that holds one, with a '/' in its path");
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  const std::vector<absl::string_view> parts = absl::StrSplit(host, '.');
  uint32_t number = 0;
  for (const absl::string_view part : parts) {
    if (part.empty() || part.size() > 3 || !absl::ascii_isdigit(part.front()) || !absl::SimpleAtoi(part, &number) ||
        number > 255)
      return false;
  }
  return parts.size() == 4 && parts.front() == "127";
}

const char kListeningAllowed[] =
    "loopback (127.0.0.1), or any address together with security.mode: tls, security.mode: token, or, on a network "
    "that "
    "nobody else can reach, security.insecure: true";

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace slackline
