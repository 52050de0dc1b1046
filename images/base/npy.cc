#include "images/base/npy.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace slackline::images {
namespace {

constexpr absl::string_view kNpyMagic = "\x93NUMPY";
constexpr absl::string_view kNpyVersion("\x01\x00", 2);
constexpr size_t kLengthAt = 8;
constexpr size_t kDictionaryAt = 10;
constexpr size_t kNpyAlignment = 64;

absl::Status BadHeader(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, "; needed is a file of NumPy's format 1.0"));
}

// The text behind 'key': in the dictionary; empty where there is none.
absl::string_view ValueAt(absl::string_view dictionary, absl::string_view key) {
  const std::string name = absl::StrCat("'", key, "':");
  const size_t at = dictionary.find(name);
  if (at == absl::string_view::npos) return {};
  return absl::StripLeadingAsciiWhitespace(dictionary.substr(at + name.size()));
}

absl::StatusOr<std::vector<uint64_t>> ParseSides(absl::string_view text) {
  const size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == absl::string_view::npos) return BadHeader("the header has no shape");
  std::vector<uint64_t> shape;
  for (absl::string_view part : absl::StrSplit(text.substr(1, end - 1), ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    uint64_t side = 0;
    if (!absl::SimpleAtoi(part, &side)) return BadHeader(absl::StrCat("the header's shape has '", part, "'"));
    shape.push_back(side);
  }
  return shape;
}

}  // namespace

std::string NpyHeaderText(absl::string_view type, absl::Span<const uint64_t> shape) {
  std::string text = absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  const size_t bare = kDictionaryAt + text.size() + 1;
  text.append((kNpyAlignment - bare % kNpyAlignment) % kNpyAlignment, ' ');
  text += '\n';
  SLACKLINE_CHECK(text.size() <= 0xffff);
  std::string length = {static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return absl::StrCat(kNpyMagic, kNpyVersion, length, text);
}

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes) {
  if (bytes.size() < kDictionaryAt) return BadHeader(absl::StrCat("there are only ", bytes.size(), " bytes"));
  if (bytes.substr(0, kNpyMagic.size()) != kNpyMagic) return BadHeader("it does not begin with \\x93NUMPY");
  if (bytes.substr(kNpyMagic.size(), 2) != kNpyVersion) {
    return BadHeader(
        absl::StrCat("it has version ", static_cast<uint8_t>(bytes[6]), ".", static_cast<uint8_t>(bytes[7])));
  }
  const size_t length = static_cast<uint8_t>(bytes[kLengthAt]) | size_t{static_cast<uint8_t>(bytes[kLengthAt + 1])}
                                                                     << 8;
  if (bytes.size() < kDictionaryAt + length) return BadHeader("cut short in the header");
  const absl::string_view dictionary = bytes.substr(kDictionaryAt, length);
  NpyHeader header;
  header.data_offset = kDictionaryAt + length;
  const absl::string_view type = ValueAt(dictionary, "descr");
  const size_t quote = type.empty() ? absl::string_view::npos : type.find('\'', 1);
  if (type.empty() || type[0] != '\'' || quote == absl::string_view::npos) return BadHeader("the header has no type");
  header.type = std::string(type.substr(1, quote - 1));
  const absl::string_view order = ValueAt(dictionary, "fortran_order");
  if (order.substr(0, 5) != "False") return BadHeader("the header does not say 'fortran_order': False");
  absl::StatusOr<std::vector<uint64_t>> shape = ParseSides(ValueAt(dictionary, "shape"));
  if (!shape.ok()) return shape.status();
  header.shape = *std::move(shape);
  return header;
}

}  // namespace slackline::images
