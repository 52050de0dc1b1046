#include "cli/base/replace_file.h"

#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace slackline::cli {

absl::Status ReplaceFile(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path draft = path.string() + ".tmp";
  std::ofstream out(draft, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(draft, path, error);
  if (!out || error) return absl::UnavailableError(absl::StrCat("cannot write ", path.string()));
  return absl::OkStatus();
}

}  // namespace slackline::cli
