#include "common/process/core_wish.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace slackline {
namespace {

constexpr uint32_t kCoreMax = 4095;
constexpr size_t kShownMax = 40;

struct CoreRange {
  uint32_t first = 0, last = 0;
};

absl::Status Refused(const std::string& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("found ", found, "; allowed is auto, a number of cores from 1 to ", kCoreMax + 1,
                   ", or a list of cores and ranges of them such as [0-3, 8], each once"));
}

// Digits only: no signs, no spaces.
std::optional<uint32_t> Number(absl::string_view text) {
  uint32_t number = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == absl::string_view::npos;
  return digits && absl::SimpleAtoi(text, &number) ? std::optional(number) : std::nullopt;
}

std::optional<CoreRange> ParseRange(const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  const std::optional<uint32_t> first = Number(ends.first);
  const bool one = text.find('-') == std::string::npos;
  const std::optional<uint32_t> last = one ? first : Number(ends.second);
  if (!first || !last || *first > *last || *last > kCoreMax) return std::nullopt;
  return CoreRange{*first, *last};
}

}  // namespace

absl::StatusOr<CoreWish> ParseCores(absl::Span<const std::string> items) {
  if (items.empty()) return CoreWish{};
  const auto quoted = [](const std::string& item) {
    return absl::StrCat("'", absl::Utf8SafeCEscape(item.substr(0, kShownMax)), "'");
  };
  if (items.size() == 1 && items[0] == "auto") return CoreWish{.kind = CoreWish::Kind::kAuto};
  if (const std::optional<uint32_t> count = Number(items[0]); items.size() == 1 && count) {
    if (*count == 0 || *count > kCoreMax + 1) return Refused(quoted(items[0]));
    return CoreWish{.kind = CoreWish::Kind::kCount, .count = *count};
  }
  CoreWish wish{.kind = CoreWish::Kind::kList};
  for (const std::string& item : items) {
    const std::optional<CoreRange> range = ParseRange(item);
    if (!range) return Refused(quoted(item));
    for (uint32_t core = range->first; core <= range->last; ++core) wish.cores.push_back(core);
  }
  std::sort(wish.cores.begin(), wish.cores.end());
  const auto twice = std::adjacent_find(wish.cores.begin(), wish.cores.end());
  if (twice != wish.cores.end()) return Refused(absl::StrCat("core ", *twice, " twice"));
  return wish;
}

std::string CoresText(absl::Span<const uint32_t> cores) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; begin < cores.size(); begin = end) {
    end = begin + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    parts.push_back(end - begin > 1 ? absl::StrCat(cores[begin], "-", cores[end - 1]) : absl::StrCat(cores[begin]));
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

}  // namespace slackline
