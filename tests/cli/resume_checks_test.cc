#include "cli/run/run_checks.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_format.h"
#include "images/prepared/prepared_index.h"

namespace slackline::cli::resume_checks_test {
namespace {

TEST(CheckModelKept, AnEqualModelIsAllowed) {
  job::Job before, after;
  after.mutable_model()->set_kind(job::Model::MLP);  // the default, written out
  after.mutable_training()->set_epochs(99);
  EXPECT_TRUE(CheckModelKept(before, after).ok());
}

TEST(CheckModelKept, EveryDifferenceIsNamed) {
  job::Job before, after;
  before.mutable_model()->add_hidden(32);
  before.mutable_model()->add_hidden(16);
  after.mutable_model()->add_hidden(12);
  after.mutable_model()->set_kind(job::Model::CNN);
  const absl::Status status = CheckModelKept(before, after);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "model.kind: found cnn; allowed is mlp, as the checkpoints of the run have it\n"
            "model.hidden: found [12]; allowed is [32,16], as the checkpoints of the run have it");
}

TEST(CheckModelKept, FewerLayersAreADifference) {
  job::Job before, after;
  before.mutable_model()->add_hidden(32);
  EXPECT_FALSE(CheckModelKept(before, after).ok());
  EXPECT_FALSE(CheckModelKept(after, before).ok());
}

TEST(CheckImagesKept, FewerImagesThanTheCheckpointHasAreRefused) {
  job::Job job;
  EXPECT_TRUE(CheckImagesKept(60000, 0, job).ok());
  job.mutable_data()->set_train_images_max(70000);
  EXPECT_TRUE(CheckImagesKept(60000, 0, job).ok());
  job.mutable_data()->set_train_images_max(500);
  EXPECT_TRUE(CheckImagesKept(500, 0, job).ok());
  EXPECT_EQ(CheckImagesKept(60000, 0, job).message(),
            "data.train_images_max: found 500; allowed is 60000, as many images as the checkpoint has");
}

TEST(CheckImagesKept, PreparedImagesAreCounted) {
  const std::string folder = testing::TempDir() + "/check_images_kept";
  std::filesystem::create_directories(folder);
  images::PreparedIndex index;
  index.classes = {"a", "b"};
  index.shape = {1, 2, 2};
  index.mean = {0.5};
  index.deviation = {0.2};
  index.settings = "{}";
  images::PreparedShard shard{.images = {.name = "train-00000.images.npy", .bytes = 256, .checksum = 1},
                              .labels = {.name = "train-00000.labels.npy", .bytes = 256, .checksum = 1},
                              .rows = 7};
  index.splits.push_back({.name = "train", .shards = {shard}, .class_counts = {3, 4}});
  std::ofstream(folder + "/index.json") << images::ToJson(index);
  job::Job job;
  job.mutable_data()->set_format(job::Data::PREPARED);
  job.mutable_data()->set_path(folder);
  EXPECT_TRUE(CheckImagesKept(7, 0, job).ok());
  EXPECT_EQ(CheckImagesKept(8, 0, job).message(),
            "data.path: found 7 training images in " + folder + "; allowed are 8, as the checkpoint has them");
  job.mutable_data()->set_train_images_max(5);
  EXPECT_TRUE(CheckImagesKept(5, 0, job).ok());
  EXPECT_EQ(CheckImagesKept(7, 0, job).message(),
            "data.path: found 5 training images in " + folder +
                " (data.train_images_max: 5); allowed are 7, as the checkpoint has them");
  // Prepared anew, as many.
  job.mutable_data()->set_train_images_max(0);
  const uint64_t before = images::FingerprintOf(index, 0);
  EXPECT_TRUE(CheckImagesKept(7, before, job).ok());
  index.splits[0].shards[0].images.checksum = 2;
  std::ofstream(folder + "/index.json") << images::ToJson(index);
  const std::string kept = absl::StrFormat("%016x", before);
  const absl::Status refused = CheckImagesKept(7, before, job);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("; allowed is " + kept + ", that of the data which the checkpoint"),
                             testing::HasSubstr("--set data.replaces=" + kept)));
  EXPECT_TRUE(CheckImagesKept(7, 0, job).ok()) << "of a checkpoint that has none";
  job.mutable_data()->set_replaces(kept);
  EXPECT_TRUE(CheckImagesKept(7, before, job).ok());
}

}  // namespace
}  // namespace slackline::cli::resume_checks_test
