#include "scheduler/confusion_image.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace slackline::scheduler {
namespace {

// Near this many pixels a side, whatever the number of classes; but no larger cells than that.
constexpr uint32_t kSide = 192, kCellMax = 24;
// Indices of colours: 0 to kDarkest by share, and one for labels without samples.
constexpr uint8_t kDarkest = 254, kNoSamples = 255;
constexpr size_t kStoredBytesMax = 65535;

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

// CRC-32 of PNG and zlib (ISO 3309), a bit at a time: pictures are small.
uint32_t PngCrc(absl::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

uint32_t Adler32(absl::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

std::string PngChunk(absl::string_view kind, absl::string_view data) {
  const std::string body = absl::StrCat(kind, data);
  return absl::StrCat(BigEndian(static_cast<uint32_t>(data.size())), body, BigEndian(PngCrc(body)));
}

// zlib's format, without compression.
std::string Stored(absl::string_view data) {
  std::string out = "\x78\x01";
  for (size_t at = 0; at < data.size(); at += kStoredBytesMax) {
    const absl::string_view block = data.substr(at, kStoredBytesMax);
    const auto size = static_cast<uint16_t>(block.size());
    const auto not_size = static_cast<uint16_t>(~size);
    out.push_back(at + block.size() == data.size() ? 1 : 0);
    for (const uint16_t value : {size, not_size}) {
      out.push_back(static_cast<char>(value & 0xFF));
      out.push_back(static_cast<char>(value >> 8));
    }
    absl::StrAppend(&out, block);
  }
  return absl::StrCat(out, BigEndian(Adler32(data)));
}

// From white to dark blue; then light grey.
std::string Palette() {
  constexpr std::array<double, 3> kDark = {8, 48, 107};
  std::string colours;
  for (int i = 0; i <= kDarkest; ++i) {
    for (const double dark : kDark) {
      colours.push_back(static_cast<char>(std::lround(255 + (dark - 255) * i / kDarkest)));
    }
  }
  return colours.append(3, static_cast<char>(0xE0));
}

// Of each cell, row after row.
std::string Shades(absl::Span<const uint64_t> counts, size_t classes) {
  std::string shades;
  for (size_t label = 0; label < classes; ++label) {
    double samples = 0;
    for (size_t i = 0; i < classes; ++i) samples += static_cast<double>(counts[label * classes + i]);
    for (size_t i = 0; i < classes; ++i) {
      const auto count = static_cast<double>(counts[label * classes + i]);
      shades.push_back(static_cast<char>(samples > 0 ? std::lround(kDarkest * count / samples) : kNoSamples));
    }
  }
  return shades;
}

}  // namespace

std::optional<PngImage> DrawConfusion(absl::Span<const uint64_t> counts) {
  const auto classes = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(counts.size()))));
  if (classes == 0 || classes > kConfusionClassesMax || classes * classes != counts.size()) return std::nullopt;
  const size_t cell = std::min<size_t>(kCellMax, kSide / classes);
  const std::string shades = Shades(counts, classes);
  std::string rows;
  for (size_t y = 0; y < classes * cell; ++y) {
    rows.push_back(0);  // no filter
    for (size_t x = 0; x < classes; ++x) rows.append(cell, shades[y / cell * classes + x]);
  }
  PngImage image;
  image.width = image.height = static_cast<uint32_t>(classes * cell);
  // 8 bits, of a palette; the only ways to compress and filter; not interlaced.
  const std::string header =
      absl::StrCat(BigEndian(image.width), BigEndian(image.height), absl::string_view("\x08\x03\0\0\0", 5));
  image.bytes = absl::StrCat("\x89PNG\r\n\x1a\n", PngChunk("IHDR", header), PngChunk("PLTE", Palette()),
                             PngChunk("IDAT", Stored(rows)), PngChunk("IEND", ""));
  return image;
}

}  // namespace slackline::scheduler
