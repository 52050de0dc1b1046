// A folder for the time of a measurement.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/support/process.h"

namespace slackline::bench {

// Ownership: the destructor removes the folder with all that is in it.
class TemporaryFolder {
 public:
  // Makes a folder that only this user may open; ends the program if that fails.
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "slackline-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      ExitOnError(absl::UnavailableError(absl::StrCat("cannot make a temporary folder: ", name)));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace slackline::bench
