// Parts of `slackline prepare` that need no pictures; prepare_test.py tests the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "cli/base/complain.h"
#include "cli/prepare/decoders.h"
#include "cli/prepare/prepare.h"
#include "cli/prepare/shard_maker.h"
#include "images/base/random_order.h"
#include "images/dataset/dataset.h"
#include "images/pictures/image.h"
#include "images/pictures/label_file.h"
#include "images/pictures/split.h"
#include "tests/images/test_data.h"

namespace slackline::cli::prepare::prepare_parts_test {
namespace {

using images::pictures::CsvField;
using images::pictures::DecodeImage;
using images::pictures::Fit;
using images::pictures::Fractions;
using images::pictures::Image;
using images::pictures::ParseFractions;
using images::pictures::ParseLabels;
using images::pictures::Resize;
using images::pictures::Size;
using images::pictures::SplitCounts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Split, FractionsAreReadOrRefused) {
  EXPECT_THAT(*ParseFractions("test=0.25,train=0.75"), ElementsAre(0.75, 0, 0.25));
  EXPECT_THAT(*ParseFractions("train=1"), ElementsAre(1, 0, 0));
  EXPECT_THAT(*ParseFractions("train=0.5,val=0.5"), ElementsAre(0.5, 0.5, 0));
  for (const char* text : {"", "train", "train=", "train=x", "train=nan", "train=-1,test=2", "train=0.5,train=0.5",
                           "train=0.9", "test=1", "rest=1", "train=1,"}) {
    EXPECT_THAT(std::string(ParseFractions(text).status().message()), HasSubstr("allowed is e.g. train=0.85")) << text;
  }
}

// For many classes of random sizes: nobody is lost, no class is off by more than one image and what was carried to it,
// and the whole is off by less than one.
TEST(Split, CountsAreStratifiedAndExactAsAWhole) {
  SplitMix64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint64_t> classes(1 + random.Below(40));
    for (uint64_t& count : classes) count = random.Below(random.Below(2) == 0 ? 5 : 1000);
    const double train = 0.05 + 0.9 * static_cast<double>(random.Below(1000)) / 1000;
    const double validation = (1 - train) * static_cast<double>(random.Below(1001)) / 1000;
    const Fractions fractions = {train, validation, 1 - train - validation};
    const auto counts = SplitCounts(classes, fractions);
    std::vector<double> totals(3), due(3);
    for (size_t c = 0; c < classes.size(); ++c) {
      EXPECT_EQ(std::accumulate(counts[c].begin(), counts[c].end(), uint64_t{0}), classes[c]);
      for (size_t s = 0; s < 3; ++s) {
        const double wanted = fractions[s] * static_cast<double>(classes[c]);
        EXPECT_LT(std::abs(static_cast<double>(counts[c][s]) - wanted), 2.0);
        totals[s] += static_cast<double>(counts[c][s]);
        due[s] += wanted;
      }
    }
    for (size_t s = 0; s < 3; ++s) EXPECT_LT(std::abs(totals[s] - due[s]), 1.0) << round;
  }
}

TEST(Decoders, EachTaskIsDoneOnceInEveryRun) {
  Decoders decoders(3);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}}) {
    std::vector<std::atomic<int>> done(count);
    decoders.Run(
        count, [&](size_t i) { ++done[i]; }, [](size_t) {});
    for (const std::atomic<int>& one : done) EXPECT_EQ(one, 1);
  }
}

TEST(Image, GarbageIsRefusedWhateverItBeginsWith) {
  for (const std::string head : {"", "\xff\xd8\xff", "\x89PNG\r\n\x1a\n", "GIF89a"}) {
    for (const size_t size : {0, 1, 100, 5000}) {
      const Bytes noise = Noise(size);
      EXPECT_FALSE(DecodeImage(head + std::string(noise.begin(), noise.end())).ok());
    }
  }
}

TEST(Image, AnEvenImageStaysEvenInAnySize) {
  for (const Size size :
       {Size{.width = 1, .height = 1}, Size{.width = 7, .height = 40}, Size{.width = 64, .height = 3}}) {
    for (const Fit fit : {Fit::kStretch, Fit::kCrop}) {
      const auto out = Resize({.channels = 3, .height = 9, .width = 13, .pixels = Bytes(9 * 13 * 3, 201)}, size, fit);
      ASSERT_TRUE(out.ok());
      EXPECT_EQ(out->pixels, Bytes(size_t{size.width} * size.height * 3, 201));
    }
  }
}

TEST(ShardRecord, ReadsAsItWasWritten) {
  const ShardRecord record{
      .shard = {.images = {.name = "a.npy", .bytes = 5, .checksum = 7}, .labels = {.name = "b.npy"}, .rows = 2},
      .class_counts = {1, 1},
      .sums = {4, 5, 6},
      .square_sums = {7, absl::MakeUint128(1, 2), 9},
      .skipped = {{.name = "no \xff utf", .reason = "line\nbreak"}}};
  const auto read = ParseShardRecord(ToJson(record), 2, 3);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(record));
  EXPECT_EQ(read->skipped[0].name, "no \xff utf");
  EXPECT_FALSE(ParseShardRecord(ToJson(record), 3, 3).ok());
  EXPECT_FALSE(ParseShardRecord("{", 2, 3).ok());
}

TEST(Prepare, IdxComesBackAsItWas) {
  const TemporaryFolder folder;
  WriteImages(folder.path(), "train", 300, 12);
  WriteImages(folder.path(), "t10k", 20, 12);
  PrepareOptions options;
  options.source = folder.path();
  options.folder = folder / "out";
  options.jobs = 3;
  options.shard_images = 64;
  options.quiet = true;
  ASSERT_EQ(Prepare(options), kExitDone);
  EXPECT_EQ(VerifyPrepared(options.folder), kExitDone);
  const auto index = images::ReadPreparedIndex(options.folder);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->Find("train")->shards.size(), 5u);
  const auto before = images::Dataset::ReadIdx(folder.path(), "train");
  const auto after = images::Dataset::OpenPrepared(options.folder, *index, "train", {.images_max = 0, .verify = true});
  ASSERT_TRUE(before.ok() && after.ok()) << after.status();
  // In another order, but nothing is lost.
  EXPECT_EQ(after->LabelCounts(10), before->LabelCounts(10));
  std::vector<uint32_t> all(300);
  std::iota(all.begin(), all.end(), 0);
  images::Batch old_batch, new_batch;
  ASSERT_TRUE(before->Load(all, index->mean[0], index->deviation[0], old_batch).ok());
  ASSERT_TRUE(after->Load(all, 0, 1, new_batch).ok());
  std::sort(old_batch.images.begin(), old_batch.images.end());
  std::sort(new_batch.images.begin(), new_batch.images.end());
  EXPECT_EQ(new_batch.images, old_batch.images);
  // Normalised: what the index says is true.
  const double sum = std::accumulate(new_batch.images.begin(), new_batch.images.end(), 0.0);
  EXPECT_NEAR(sum / static_cast<double>(new_batch.images.size()), 0, 1e-4);
}

}  // namespace
}  // namespace slackline::cli::prepare::prepare_parts_test
