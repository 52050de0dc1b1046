// A folder laid out like the kernel's /sys, with power meters that tests set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"

namespace slackline::power {

class SysfsTest : public testing::Test {
 protected:
  SysfsTest()
      : root_(std::filesystem::path(testing::TempDir()) /
              absl::StrCat("sysfs-", testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~SysfsTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }

  // Writes the energy meter of `zone`, for example "intel-rapl:0".
  void WriteZone(const std::string& zone, const std::string& name, uint64_t energy_uj) {
    const std::string folder = absl::StrCat("class/powercap/", zone, "/");
    Write(folder + "name", name);
    Write(folder + "energy_uj", absl::StrCat(energy_uj));
    Write(folder + "max_energy_range_uj", "1000000000");
  }

  const std::filesystem::path root_;
};

}  // namespace slackline::power
