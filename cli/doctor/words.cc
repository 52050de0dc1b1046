#include "cli/doctor/words.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace slackline::cli::doctor {

std::string Bytes(uint64_t bytes) {
  if (bytes < (uint64_t{1} << 20)) return absl::StrCat(bytes, " bytes");
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? absl::StrFormat("%.0f MiB", mebibytes) : absl::StrFormat("%.1f GiB", mebibytes / 1024);
}

std::string Time(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(absl::AbsDuration(duration));
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", 1e6 * seconds);
  return seconds < 1 ? absl::StrFormat("%.1f ms", 1e3 * seconds) : absl::StrFormat("%.1f s", seconds);
}

}  // namespace slackline::cli::doctor
