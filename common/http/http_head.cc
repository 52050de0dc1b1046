#include "common/http/http_head.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace slackline {
namespace {

constexpr char kEndOfLine[] = "\r\n";
constexpr char kEndOfHead[] = "\r\n\r\n";
// Of what is wrong, in a message.
constexpr size_t kQuotedMax = 64;

absl::Status Wrong(absl::string_view what, absl::string_view found, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": found '", absl::CHexEscape(found.substr(0, kQuotedMax)), "'; allowed is ", allowed));
}

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("!#$%&'*+-.^_`|~", c);
  });
}

// RFC 9110, 5.5: a tab is the only control character that a head may contain.
bool HasControlCharacters(absl::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

absl::StatusOr<std::string> DecodePath(absl::string_view path) {
  std::string decoded;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      decoded.push_back(path[i]);
      continue;
    }
    const int high = i + 2 < path.size() ? HexDigit(path[i + 1]) : -1;
    const int low = i + 2 < path.size() ? HexDigit(path[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) return Wrong("path", path, "% with two hexadecimal digits, not both 0");
    decoded.push_back(static_cast<char>(16 * high + low));
    i += 2;
  }
  return decoded;
}

const char* Phrase(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 206:
      return "Partial Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 416:
      return "Range Not Satisfiable";
    case 429:
      return "Too Many Requests";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

absl::Status ReadFirstLine(absl::string_view line, HttpHead& head) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !IsToken(words[0]) || !absl::StartsWith(words[2], "HTTP/1.")) {
    return Wrong("request", line, "METHOD /PATH HTTP/1.1");
  }
  head.method = std::string(words[0]);
  const std::pair<absl::string_view, absl::string_view> target = absl::StrSplit(words[1], absl::MaxSplits('?', 1));
  if (!absl::StartsWith(target.first, "/")) return Wrong("path", target.first, "one that begins with a slash");
  absl::StatusOr<std::string> path = DecodePath(target.first);
  if (!path.ok()) return path.status();
  head.path = *std::move(path);
  head.query = std::string(target.second);
  return absl::OkStatus();
}

}  // namespace

std::string HttpHead::Header(absl::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(),
                                  [&](const auto& header) { return absl::EqualsIgnoreCase(header.first, name); });
  return found == headers.end() ? "" : found->second;
}

std::optional<size_t> HttpHeadBytes(absl::string_view received) {
  const size_t end = received.find(kEndOfHead);
  if (end == absl::string_view::npos) return std::nullopt;
  return end + sizeof(kEndOfHead) - 1;
}

absl::StatusOr<HttpHead> ParseHttpHead(absl::string_view head) {
  if (!absl::ConsumeSuffix(&head, kEndOfHead)) return Wrong("head", head, "one that ends with an empty line");
  const std::vector<absl::string_view> lines = absl::StrSplit(head, kEndOfLine);
  for (const absl::string_view line : lines) {
    if (HasControlCharacters(line)) return Wrong("head", line, "text without control characters");
  }
  HttpHead read;
  if (absl::Status status = ReadFirstLine(lines.front(), read); !status.ok()) return status;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> header = absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    if (!IsToken(header.first) || header.first.size() == lines[i].size()) {
      return Wrong("header", lines[i], "NAME: VALUE");
    }
    read.headers.emplace_back(header.first, absl::StripAsciiWhitespace(header.second));
  }
  return read;
}

absl::StatusOr<size_t> HttpBodyBytes(const HttpHead& head) {
  if (const std::string coding = head.Header("Transfer-Encoding"); !coding.empty()) {
    return Wrong("Transfer-Encoding", coding, "a body with a Content-Length and without this header");
  }
  const std::string length = head.Header("Content-Length");
  if (length.empty()) return 0;
  size_t bytes = 0;
  if (!std::all_of(length.begin(), length.end(), absl::ascii_isdigit)) {
    return Wrong("Content-Length", length, "a number of bytes");
  }
  // A number too long to be read is too many bytes, too.
  if (!absl::SimpleAtoi(length, &bytes) || bytes > kHttpBodyBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("found a body of ", length.substr(0, kQuotedMax), " bytes; allowed are ", kHttpBodyBytesMax));
  }
  return bytes;
}

std::string HttpHeadText(const HttpResponse& response, std::optional<uint64_t> body_bytes) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.code, " ", Phrase(response.code),
                                  "\r\nContent-Type: ", response.type, "\r\nConnection: close\r\n");
  if (body_bytes) absl::StrAppend(&head, "Content-Length: ", *body_bytes, "\r\n");
  for (const auto& [name, value] : response.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  return head + "\r\n";
}

std::string HttpText(const HttpResponse& response, bool head_only) {
  const std::string head = HttpHeadText(response, response.body.size());
  return head_only ? head : head + response.body;
}

}  // namespace slackline
