#include "images/pictures/tar_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace slackline::images::pictures {
namespace {

constexpr uint64_t kTarBlock = 512;
// Of a name, or of a pax header's records.
constexpr uint64_t kTarTextMax = 1 << 20;

class TarFile {
 public:
  explicit TarFile(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~TarFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  TarFile(const TarFile&) = delete;
  TarFile& operator=(const TarFile&) = delete;

  absl::StatusOr<uint64_t> Size() const {
    struct stat about {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) return Error("open");
    if (!S_ISREG(about.st_mode)) return absl::UnavailableError(absl::StrCat(path_, " is no file"));
    return static_cast<uint64_t>(about.st_size);
  }

  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t bytes) const {
    if (descriptor_ < 0) return Error("open");
    std::string text(bytes, '\0');
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t got = ::pread(descriptor_, text.data() + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error("read");
      if (got == 0) {
        return absl::InvalidArgumentError(absl::StrCat(path_, " was cut short: it ends at byte ", offset + done,
                                                       ", and ", bytes, " bytes from ", offset, " on are needed"));
      }
      done += static_cast<uint64_t>(got);
    }
    return text;
  }

 private:
  absl::Status Error(absl::string_view doing) const {
    const std::string message = absl::StrCat("cannot ", doing, " ", path_, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }

  const std::string path_;
  const int descriptor_;
};

// A header's fields.
struct TarHeader {
  std::string name;
  uint64_t bytes = 0;
  char type = '0';
};

// Up to the first 0.
absl::string_view Text(absl::string_view field) { return field.substr(0, field.find('\0')); }

// Octal digits; or, with the highest bit set, the big-endian number behind it (GNU).
bool ParseTarNumber(absl::string_view field, uint64_t& value) {
  value = 0;
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    for (size_t i = 0; i < field.size(); ++i) {
      if (value >> 55 != 0) return false;
      value = value << 8 | (static_cast<uint8_t>(field[i]) & (i == 0 ? 0x7f : 0xff));
    }
    return true;
  }
  const absl::string_view digits = absl::StripSuffix(absl::StripPrefix(Text(field), " "), " ");
  for (const char digit : digits) {
    if (digit == ' ') continue;
    if (digit < '0' || digit > '7') return false;
    value = value << 3 | static_cast<uint64_t>(digit - '0');
  }
  return true;
}

bool HasRightSum(absl::string_view block) {
  constexpr size_t kBegin = 148, kEnd = 156;
  uint64_t said = 0, sum = 0;
  int64_t signed_sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const char byte = i >= kBegin && i < kEnd ? ' ' : block[i];
    sum += static_cast<uint8_t>(byte);
    signed_sum += static_cast<signed char>(byte);
  }
  return ParseTarNumber(block.substr(kBegin, kEnd - kBegin), said) &&
         (said == sum || static_cast<int64_t>(said) == signed_sum);
}

absl::StatusOr<TarHeader> ParseTarHeader(absl::string_view block) {
  if (absl::StartsWith(block, "\x1f\x8b") || absl::StartsWith(block, "BZh") || absl::StartsWith(block, "\xfd\x37zXZ") ||
      absl::StartsWith(block, "\x28\xb5\x2f\xfd")) {
    return absl::InvalidArgumentError("it is compressed; allowed are tar files as they are");
  }
  TarHeader header;
  if (!HasRightSum(block) || !ParseTarNumber(block.substr(124, 12), header.bytes)) {
    return absl::InvalidArgumentError("no header of a tar file, or a damaged one");
  }
  header.name = std::string(Text(block.substr(0, 100)));
  header.type = block[156];
  // GNU has other fields there.
  const absl::string_view prefix = Text(block.substr(345, 155));
  if (block.substr(257, 6) == absl::string_view("ustar\0", 6) && !prefix.empty()) {
    header.name = absl::StrCat(prefix, "/", header.name);
  }
  return header;
}

// "length key=value\n" and so on.
bool ParsePax(absl::string_view text, std::map<std::string, std::string>& records) {
  while (!text.empty() && text[0] != '\0') {
    const size_t blank = text.find(' ');
    uint64_t length = 0;
    if (blank == absl::string_view::npos || !absl::SimpleAtoi(text.substr(0, blank), &length) || length < blank + 2 ||
        length > text.size() || text[length - 1] != '\n') {
      return false;
    }
    const absl::string_view record = text.substr(blank + 1, length - blank - 2);
    const size_t equals = record.find('=');
    if (equals == absl::string_view::npos) return false;
    records[std::string(record.substr(0, equals))] = std::string(record.substr(equals + 1));
    text.remove_prefix(length);
  }
  return true;
}

// What headers of type L and x say of the member behind them.
struct Ahead {
  std::string name;
  std::map<std::string, std::string> pax;
};

absl::Status Complete(const Ahead& ahead, TarHeader& header) {
  if (!ahead.name.empty()) header.name = ahead.name;
  if (const auto path = ahead.pax.find("path"); path != ahead.pax.end()) header.name = path->second;
  if (const auto size = ahead.pax.find("size");
      size != ahead.pax.end() && !absl::SimpleAtoi(size->second, &header.bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("its pax header says the size '", size->second, "'"));
  }
  for (const auto& [key, value] : ahead.pax) {
    if (absl::StartsWith(key, "GNU.sparse")) return absl::InvalidArgumentError("a sparse file; allowed are whole ones");
  }
  return absl::OkStatus();
}

bool IsRegular(char type) { return type == '0' || type == '\0' || type == '7'; }

// They have no bytes, whatever their size says.
bool IsLinkOrDevice(char type) { return type >= '1' && type <= '6'; }

// `block`: the header at `at`. Moves `at` behind what is behind it.
absl::Status ReadMember(const TarFile& file, absl::string_view block, uint64_t size, uint64_t& at, Ahead& ahead,
                        std::vector<TarMember>& members) {
  absl::StatusOr<TarHeader> header = ParseTarHeader(block);
  if (!header.ok()) return header.status();
  const bool says_more = header->type == 'L' || header->type == 'x';
  if (header->type == 'S') return absl::InvalidArgumentError("a sparse file; allowed are whole ones");
  if (!says_more && header->type != 'K' && header->type != 'g') {
    if (absl::Status status = Complete(ahead, *header); !status.ok()) return status;
    ahead = {};
  }
  const uint64_t bytes = IsLinkOrDevice(header->type) ? 0 : header->bytes;
  const uint64_t begin = at + kTarBlock;
  if (bytes > size || begin > size - bytes) {
    return absl::InvalidArgumentError(absl::StrCat(header->name, " needs ", bytes, " bytes from ", begin,
                                                   " on, and the file has ", size, ": it was cut short"));
  }
  if (says_more) {
    if (bytes > kTarTextMax) {
      return absl::InvalidArgumentError(absl::StrCat("a name of ", bytes, " bytes; allowed are ", kTarTextMax));
    }
    const absl::StatusOr<std::string> text = file.Read(begin, bytes);
    if (!text.ok()) return text.status();
    if (header->type == 'L') ahead.name = std::string(Text(*text));
    if (header->type == 'x' && !ParsePax(*text, ahead.pax)) return absl::InvalidArgumentError("a damaged pax header");
  } else if (IsRegular(header->type)) {
    members.push_back({.name = header->name, .offset = begin, .bytes = bytes});
  }
  at = begin + (bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TarMember>> ReadTarIndex(const std::string& path) {
  const TarFile file(path);
  const absl::StatusOr<uint64_t> size = file.Size();
  if (!size.ok()) return size.status();
  std::vector<TarMember> members;
  Ahead ahead;
  for (uint64_t at = 0;;) {
    if (at + kTarBlock > *size) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " was cut short: it has ", *size, " bytes and no block of zeros at ", at, ", where a tar file ends"));
    }
    const absl::StatusOr<std::string> block = file.Read(at, kTarBlock);
    if (!block.ok()) return block.status();
    if (std::all_of(block->begin(), block->end(), [](char byte) { return byte == '\0'; })) return members;
    const uint64_t begin = at;
    if (absl::Status status = ReadMember(file, *block, *size, at, ahead, members); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(path, ", byte ", begin, ": ", status.message()));
    }
  }
}

absl::StatusOr<std::string> ReadPart(const std::string& path, uint64_t offset, uint64_t bytes) {
  return TarFile(path).Read(offset, bytes);
}

}  // namespace slackline::images::pictures
