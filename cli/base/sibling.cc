#include "cli/base/sibling.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace slackline::cli {

namespace fs = std::filesystem;

absl::StatusOr<fs::path> Sibling(const std::string& name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError("cannot tell where this program is: /proc/self/exe is not readable");
  fs::path path = self.parent_path() / name;
  if (::access(path.c_str(), X_OK) == 0) return path;
  const fs::path build = self.parent_path().parent_path();
  const std::string what_to_do = fs::exists(build / "CMakeCache.txt", error)
                                     ? absl::StrCat("to build it: cmake --build ", build.string(), " --target ", name)
                                     : "install all programs of Slackline into one folder";
  return absl::NotFoundError(absl::StrCat("there is no program ", name, " beside this one, in ",
                                          self.parent_path().string(), "; ", what_to_do));
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
