// A folder for temporary files.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace slackline::cli {

// A folder that only this user can look into. It is removed with what is in it.
//
// Thread-safety: none.
class ScratchFolder {
 public:
  // `purpose` becomes a part of its name.
  explicit ScratchFolder(const char* purpose) {
    std::error_code error;
    std::string name = std::filesystem::temp_directory_path(error) / absl::StrCat("slackline-", purpose, "-XXXXXX");
    if (!error && ::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }

  // Empty if none could be made.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace slackline::cli
