// A folder that is removed after its test, and options of credentials for it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "absl/time/clock.h"
#include "common/security/make_credentials.h"
#include "gtest/gtest.h"

namespace slackline::security {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = testing::TempDir() + "/slackline-security-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Returns options of credentials that are valid from an hour ago to `valid_for` from now on.
inline MakeOptions MakeFor(const std::string& folder, absl::Duration valid_for = absl::Hours(1)) {
  return {.folder = folder,
          .job = "first",
          .not_before = absl::Now() - absl::Hours(1),
          .not_after = absl::Now() + valid_for};
}

}  // namespace slackline::security
