#include "cli/base/replace_file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace slackline::cli {

absl::Status ReplaceFile(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path draft = path.string() + ".tmp";
  errno = 0;
  std::ofstream out(draft, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code error(out ? 0 : errno, std::generic_category());
  if (out) std::filesystem::rename(draft, path, error);
  if (out && !error) return absl::OkStatus();
  std::error_code ignored;
  std::filesystem::remove(draft, ignored);
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path.string(), error ? ": " : "", error ? error.message() : ""));
}

}  // namespace slackline::cli
