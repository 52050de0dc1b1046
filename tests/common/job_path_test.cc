// Paths in a job file count from the folder of that file.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/status/status.h"
#include "common/job/job_file.h"

namespace slackline::job_path_test {
namespace {

TEST(JobPath, RelativeDataPathCountsFromTheFile) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "job_file_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "j.yaml") << "data: {path: ../images}\n";
  const absl::StatusOr<job::Job> job = ReadJobFile(folder / "j.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data().path(), (folder.parent_path() / "images").lexically_normal());
  std::filesystem::remove_all(folder);
}

TEST(JobPath, FoldersThatGoIntoMessagesAreUtf8) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "job_file_test_\xff";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "j.yaml") << "checkpoint: {folder: saved}\n";
  EXPECT_THAT(std::string(ReadJobFile(folder / "j.yaml").status().message()),
              ::testing::EndsWith("/job_file_test_\uFFFD/saved, not UTF-8; allowed is a path in UTF-8"));
  // Elsewhere they lie where they should.
  const std::vector<std::string> elsewhere = {"checkpoint.folder=/tmp/saved"};
  EXPECT_TRUE(ReadJobFile(folder / "j.yaml", elsewhere).ok());
  const std::vector<std::string> snapshots = {"checkpoint.folder=/tmp/saved", "durability.folder=/tmp/a\xff"};
  EXPECT_THAT(std::string(ReadJobFile(folder / "j.yaml", snapshots).status().message()),
              ::testing::HasSubstr("durability.folder: found /tmp/a\uFFFD, not UTF-8"));
  std::filesystem::remove_all(folder);
}

TEST(JobPath, WhatCannotBeReadIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(ReadJobFile("/nowhere/j.yaml").status()));
  EXPECT_EQ(ReadJobFile("/tmp").status().message(), "/tmp: found a folder; allowed is a job file");
}

}  // namespace
}  // namespace slackline::job_path_test
