#include "cli/base/byte_size.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace slackline::cli {

std::string RenderBytes(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1024 && unit < 4; ++unit) amount /= 1024;
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, amount, units[unit]);
}

std::optional<uint64_t> ParseBytes(const std::string& text) {
  static constexpr double kTib = double{1ULL << 40};
  static constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},      {"B", 1},         {"KB", 1e3},      {"MB", 1e6},      {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", kTib}};
  const size_t digits = std::min(text.size(), text.find_first_not_of("0123456789."));
  double number = 0;
  if (!absl::SimpleAtod(text.substr(0, digits), &number)) return std::nullopt;
  for (const auto& [unit, size] : kUnits) {
    if (!absl::EqualsIgnoreCase(text.substr(digits), unit)) continue;
    const double bytes = number * size;
    return bytes >= 1 && bytes <= 1024 * kTib ? std::optional(static_cast<uint64_t>(bytes)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace slackline::cli
