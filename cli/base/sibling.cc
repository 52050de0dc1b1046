#include "cli/base/sibling.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/libtorch.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

bool NeedsLibTorch(const std::string& name) { return name == kWorkerProgram || name == kTorchSimulator; }

// Returns how to get programs that are missing from the folder `bin`.
std::string HowToGet(const std::vector<std::string>& missing, const fs::path& bin) {
  std::error_code error;
  const fs::path tree = bin.parent_path();
  if (fs::exists(tree / "CMakeCache.txt", error)) {
    return absl::StrCat("to build: cmake --build ", tree.string(), " --target ", absl::StrJoin(missing, " "));
  }
  if (fs::exists(tree.parent_path() / "__init__.py", error)) {
    return absl::c_all_of(missing, NeedsLibTorch) ? "pip install 'slackline[worker]' brings it"
                                                  : "install the package slackline again";
  }
  return "install all programs of Slackline into one folder (slackline help install)";
}

}  // namespace

absl::StatusOr<fs::path> FolderWith(const std::vector<std::string>& names) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError("cannot tell where this program is: /proc/self/exe is not readable");
  const fs::path folder = self.parent_path();
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (::access((folder / name).c_str(), X_OK) != 0) missing.push_back(name);
  }
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat("found no ", absl::StrJoin(missing, ", "), " in ", folder.string(), "; ",
                                            HowToGet(missing, folder)));
  }
  if (absl::c_any_of(names, NeedsLibTorch)) {
    const char* const library_path = ::getenv("LD_LIBRARY_PATH");
    if (absl::Status status = CheckLibTorch(folder, library_path == nullptr ? "" : library_path); !status.ok())
      return status;
  }
  return folder;
}

absl::StatusOr<fs::path> Sibling(const std::string& name) {
  absl::StatusOr<fs::path> folder = FolderWith({name});
  if (!folder.ok()) return folder.status();
  return *folder / name;
}

absl::Status Become(const fs::path& path, const std::vector<std::string>& arguments) {
  std::vector<std::string> texts = {path.string()};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  return absl::UnavailableError(absl::StrCat("cannot run ", path.string(), ": ", std::strerror(errno)));
}

}  // namespace slackline::cli
