#include "common/text/utf8.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace slackline {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";
constexpr absl::string_view kCut = "...";

}  // namespace

size_t Utf8SequenceBytes(absl::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) > 0x9f;
  const bool beyond = first == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || beyond ? 0 : length;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceBytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ValidText(absl::string_view text, size_t bytes_max) {
  std::string valid;
  size_t fits = 0;  // so much of it leaves room for kCut
  while (!text.empty()) {
    const size_t length = Utf8SequenceBytes(text);
    const absl::string_view letter = length == 0 ? kReplacement : text.substr(0, length);
    if (valid.size() + letter.size() > bytes_max) {
      valid.resize(fits);
      return valid.append(kCut.data(), kCut.size());
    }
    valid.append(letter.data(), letter.size());
    if (valid.size() + kCut.size() <= bytes_max) fits = valid.size();
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

std::string OneLine(absl::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  std::string line;
  for (size_t at = 0; at < text.size(); ++at) {
    // U+0080 to U+009F are control characters, too.
    const bool two_bytes = byte(at) == 0xc2 && at + 1 < text.size() && byte(at + 1) >= 0x80 && byte(at + 1) <= 0x9f;
    if (two_bytes) ++at;
    if (text[at] == '\n') {
      line += "\\n";
    } else if (two_bytes || absl::ascii_iscntrl(byte(at))) {
      absl::StrAppend(&line, "\\x", absl::Hex(byte(at), absl::kZeroPad2));
    } else {
      line += text[at];
    }
  }
  return line;
}

}  // namespace slackline
