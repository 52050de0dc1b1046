#include "cli/doctor/gpu_kit.h"

#include <cstdio>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/sibling.h"

namespace slackline::cli::doctor {

namespace fs = std::filesystem;

absl::StatusOr<fs::path> FindGpuKit(const fs::path& folder, const fs::path& programs) {
  std::vector<fs::path> places = {folder};
  if (folder.empty()) places = {programs.parent_path(), "gpu-kit"};
  std::error_code error;
  for (const fs::path& place : places) {
    if (fs::exists(place / "run", error) && fs::exists(place / "kit.py", error)) return place;
  }
  return absl::NotFoundError(absl::StrCat(
      "found no GPU kit in ",
      absl::StrJoin(places, " and ", [](std::string* out, const fs::path& place) { out->append(place.string()); }),
      "; scripts/gpu_kit in Slackline's source tree makes gpu-kit.tar.gz: unpack it, and name its folder, --gpu "
      "FOLDER"));
}

absl::Status RunGpuKit(const fs::path& folder, const std::string& out) {
  const absl::StatusOr<fs::path> own = Sibling("slackline");
  const absl::StatusOr<fs::path> kit = FindGpuKit(folder, own.ok() ? own->parent_path() : fs::path());
  if (!kit.ok()) return kit.status();
  const fs::path program = *kit / "run";
  std::printf("%s --out %s\n", program.c_str(), out.c_str());
  std::fflush(stdout);
  return Become(program, {"--out", out});
}

}  // namespace slackline::cli::doctor
