#include "cli/base/libtorch.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace slackline::cli::libtorch_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Trees like that of a wheel: ROOT/slackline/programs/bin, with torch at ROOT/torch.
class LibTorchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/libtorch_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = fs::path(pattern).lexically_normal();
    bin_ = root_ / "slackline/programs/bin";
    Write("slackline/programs/share/slackline/libtorch.txt", "2.13.0\n../../../torch/lib\npip install torch==2.13.0\n");
    fs::create_directories(bin_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void WriteTorch(const fs::path& folder, const std::string& version) {
    Write(folder / "lib/libtorch_cpu.so", "");
    Write(folder / "version.py",
          absl::StrCat("from typing import Optional\n\n__version__ = '", version, "'\ndebug = False\n"));
  }

  fs::path root_, bin_;
};

TEST_F(LibTorchTest, OneOfTheSameVersionPassesWhateverItsBuild) {
  for (const std::string version : {"2.13.0", "2.13.0+cpu", "2.13.0+cu130"}) {
    WriteTorch("torch", version);
    EXPECT_TRUE(CheckLibTorch(bin_, "").ok()) << version;
  }
}

TEST_F(LibTorchTest, AnotherVersionIsRefusedWithBoth) {
  WriteTorch("torch", "2.12.1+cpu");
  const absl::Status status = CheckLibTorch(bin_, "");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), absl::StrCat("slackline-worker is built for LibTorch 2.13.0, and ",
                                           (root_ / "torch/lib").string(), " has 2.12.1; pip install torch==2.13.0"));
}

TEST_F(LibTorchTest, NoneIsRefusedWithTheFolderAndWhatToDo) {
  const absl::Status status = CheckLibTorch(bin_, "/nowhere");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("built for LibTorch 2.13.0, and there is no "),
                                                   HasSubstr((root_ / "torch/lib/libtorch_cpu.so").string()),
                                                   HasSubstr("; pip install torch==2.13.0")));
}

TEST_F(LibTorchTest, TheLoadersPathIsSecond) {
  Write("site/lib/libtorch_cpu.so", "");
  Write("site/build-version", "2.13.0+cpu\n");
  const std::string library_path = absl::StrCat("/nowhere::", (root_ / "site/lib").string());
  EXPECT_TRUE(CheckLibTorch(bin_, library_path).ok());
  WriteTorch("torch", "2.9.0");
  EXPECT_THAT(std::string(CheckLibTorch(bin_, library_path).message()), HasSubstr("has 2.9.0"));
}

TEST_F(LibTorchTest, ALinkLeadsToTheFolderWithTheVersion) {
  WriteTorch("elsewhere/torch", "2.14.0");
  fs::create_directories(root_ / "torch");
  fs::create_directory_symlink(root_ / "elsewhere/torch/lib", root_ / "torch/lib");
  EXPECT_THAT(std::string(CheckLibTorch(bin_, "").message()), HasSubstr("has 2.14.0"));
}

TEST_F(LibTorchTest, WithoutAVersionOrWithItsOwnLibTorchATreePasses) {
  Write("torch/lib/libtorch_cpu.so", "");
  EXPECT_TRUE(CheckLibTorch(bin_, "").ok());
  fs::remove_all(root_ / "torch");
  fs::remove_all(root_ / "slackline/programs/share");
  EXPECT_TRUE(CheckLibTorch(bin_, "").ok());
}

}  // namespace
}  // namespace slackline::cli::libtorch_test
