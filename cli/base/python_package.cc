#include "cli/base/python_package.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/base/sibling.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

std::string Interpreter(const std::string& wanted, const fs::path& shared) {
  if (!wanted.empty()) return wanted;
  const fs::path own = shared / "venv" / "bin" / "python";
  return ::access(own.c_str(), X_OK) == 0 ? own.string() : "python3";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PackageCommand(const std::string& package, const std::string& python) {
  const absl::StatusOr<fs::path> program = Sibling("slackline");
  if (!program.ok()) return program.status();
  const fs::path shared = program->parent_path().parent_path() / "share" / "slackline";
  const fs::path folder = shared / "python" / package;
  std::error_code error;
  if (!fs::exists(folder / "__main__.py", error)) {
    return absl::InternalError(
        absl::StrCat("there is no Python package ", folder.string(), "; install all of Slackline under one prefix"));
  }
  return std::vector<std::string>{Interpreter(python, shared), folder, "--slackline", *program};
}

}  // namespace slackline::cli
