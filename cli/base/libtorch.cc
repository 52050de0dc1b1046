#include "cli/base/libtorch.h"

#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libtorch_cpu.so";

// Returns the version in the folder that holds LibTorch's lib/, without the build behind its "+"; empty if no file says
// it.
std::string VersionIn(const fs::path& folder) {
  std::string line;
  if (std::ifstream file(folder / "build-version"); !std::getline(file, line)) {
    std::ifstream python(folder / "version.py");
    while (std::getline(python, line) && !absl::StartsWith(line, "__version__ = '")) {
    }
  }
  absl::string_view version = line;
  absl::ConsumePrefix(&version, "__version__ = '");
  return std::string(version.substr(0, version.find_first_of("+' ")));
}

}  // namespace

absl::Status CheckLibTorch(const fs::path& bin, absl::string_view library_path) {
  std::ifstream file(bin.parent_path() / "share" / "slackline" / "libtorch.txt");
  std::string version, first, advice;
  if (!std::getline(file, version) || !std::getline(file, first) || !std::getline(file, advice))
    return absl::OkStatus();
  std::vector<fs::path> folders = {(bin / first).lexically_normal()};
  for (const absl::string_view one : absl::StrSplit(library_path, ':', absl::SkipEmpty())) {
    folders.emplace_back(std::string(one));
  }
  std::error_code error;
  const auto found = absl::c_find_if(folders, [&](const fs::path& one) { return fs::exists(one / kLibrary, error); });
  const std::string wanted = absl::StrCat("slackline-worker is built for LibTorch ", version);
  if (found == folders.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(wanted, ", and there is no ", (folders[0] / kLibrary).string(), "; ", advice));
  }
  // A link leads to the folder beside which the version is written.
  const fs::path lib = fs::canonical(*found, error);
  const std::string there = VersionIn(lib.parent_path());
  if (there.empty() || there == version) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(wanted, ", and ", found->string(), " has ", there, "; ", advice));
}

}  // namespace slackline::cli
