#include "images/dataset/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include <algorithm>
#include <map>
#include <set>

#include "images/base/class_names.h"
#include "tests/images/test_data.h"

namespace slackline::images::dataset_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// Three images of 2 x 3 with labels 4, 0 and 9.
class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    for (uint8_t i = 0; i < 18; ++i) pixels_.push_back(static_cast<uint8_t>(i * 15));
  }
  std::string images() const { return folder_ / "train-images-idx3-ubyte"; }
  std::string labels() const { return folder_ / "train-labels-idx1-ubyte"; }
  void WriteGood() {
    WriteFile(images(), Idx({3, 2, 3}, pixels_));
    WriteFile(labels(), Idx({3}, {4, 0, 9}));
  }
  absl::StatusOr<Dataset> Read(uint64_t images_max = 0) {
    return Dataset::ReadIdx(folder_.path(), "train", images_max);
  }
  void ExpectRefused(absl::StatusCode code, const std::string& words) {
    const absl::Status status = Read().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  TemporaryFolder folder_;
  Bytes pixels_;
};

TEST_F(DatasetTest, PlainFilesAreRead) {
  WriteGood();
  const absl::StatusOr<Dataset> data = Read();
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->size(), 3u);
  EXPECT_EQ(data->height(), 2u);
  EXPECT_EQ(data->width(), 3u);
  EXPECT_EQ(data->label_max(), 9u);
}

TEST_F(DatasetTest, FingerprintIsOfPixelsAndLabels) {
  std::set<uint64_t> seen;
  WriteGood();
  for (int again = 0; again < 2; ++again) seen.insert(Read()->Fingerprint());
  EXPECT_EQ(seen.size(), 1u);
  WriteFile(labels(), Idx({3}, {4, 9, 0}));
  seen.insert(Read()->Fingerprint());
  ++pixels_[7];
  WriteGood();
  seen.insert(Read()->Fingerprint());
  seen.insert(Read(2)->Fingerprint());
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_FALSE(seen.contains(0));
}

TEST_F(DatasetTest, GzippedFilesReadLikePlainOnes) {
  WriteGzip(images() + ".gz", Idx({3, 2, 3}, pixels_));
  WriteGzip(labels() + ".gz", Idx({3}, {4, 0, 9}));
  const absl::StatusOr<Dataset> data = Read();
  ASSERT_TRUE(data.ok()) << data.status();
  Batch batch;
  ASSERT_TRUE(data->Load({2}, 0, 1, batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(9));
  EXPECT_FLOAT_EQ(batch.images[5], 1.0f);
}

TEST_F(DatasetTest, LoadNormalisesTheImagesAskedForInTheirOrder) {
  WriteGood();
  Batch batch;
  ASSERT_TRUE(Read()->Load({2, 0}, 0.5, 0.25, batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(9, 4));
  ASSERT_EQ(batch.images.size(), 12u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_THAT(batch.images[i], FloatNear((pixels_[12 + i] / 255.0 - 0.5) / 0.25, 1e-6));
    EXPECT_THAT(batch.images[6 + i], FloatNear((pixels_[i] / 255.0 - 0.5) / 0.25, 1e-6));
  }
}

TEST_F(DatasetTest, ImagesMaxKeepsTheFirstOnes) {
  WriteGood();
  const absl::StatusOr<Dataset> data = Read(/*images_max=*/2);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->size(), 2u);
  EXPECT_EQ(data->label_max(), 4u);
  EXPECT_EQ(Read(/*images_max=*/100)->size(), 3u);
}

TEST_F(DatasetTest, MissingFileNamesBothNamesTried) {
  ExpectRefused(absl::StatusCode::kNotFound, "neither " + images() + " nor " + images() + ".gz");
}

TEST_F(DatasetTest, WrongMagicIsRefused) {
  WriteGood();
  WriteFile(images(), Idx({18}, pixels_));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "begins with bytes 0 0 8 1");
  Bytes floats = Idx({3, 2, 3}, pixels_);
  floats[2] = 0x0d;
  WriteFile(images(), floats);
  ExpectRefused(absl::StatusCode::kInvalidArgument, "begins with bytes 0 0 13 3");
}

TEST_F(DatasetTest, EveryTruncationIsRefused) {
  WriteGood();
  const Bytes good = Idx({3, 2, 3}, pixels_);
  for (size_t size = 0; size < good.size(); ++size) {
    WriteFile(images(), Bytes(good.begin(), good.begin() + size));
    ExpectRefused(absl::StatusCode::kInvalidArgument, images() + ": cut short");
  }
}

TEST_F(DatasetTest, EveryTruncationOfGzipIsRefused) {
  WriteGood();
  std::filesystem::remove(images());
  WriteGzip(images() + ".gz", Idx({3, 2, 3}, pixels_));
  const Bytes good = ReadFile(images() + ".gz");
  for (size_t size = 0; size < good.size(); ++size) {
    WriteFile(images() + ".gz", Bytes(good.begin(), good.begin() + size));
    EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument) << "after " << size << " bytes";
  }
}

TEST_F(DatasetTest, DamagedGzipIsRefused) {
  WriteGood();
  std::filesystem::remove(images());
  WriteGzip(images() + ".gz", Idx({3, 2, 3}, pixels_));
  Bytes damaged = ReadFile(images() + ".gz");
  damaged[damaged.size() - 6] ^= 1;  // in the checksum
  WriteFile(images() + ".gz", damaged);
  ExpectRefused(absl::StatusCode::kInvalidArgument, "damaged");
}

TEST_F(DatasetTest, TrailingBytesAreRefused) {
  WriteGood();
  Bytes longer = Idx({3}, {4, 0, 9});
  longer.push_back(1);
  WriteFile(labels(), longer);
  ExpectRefused(absl::StatusCode::kInvalidArgument, labels() + ": trailing bytes");
}

TEST_F(DatasetTest, HeaderCannotAskForMemoryThatTheFileDoesNotFill) {
  WriteGood();
  WriteFile(images(), Idx({1u << 31, 28, 28}, pixels_));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "cut short: the header promises 1683627180032 bytes, 18 are there");
  WriteFile(images(), Idx({~0u, ~0u, ~0u}, pixels_));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "4294967295 x 4294967295 x 4294967295");
  WriteFile(images(), Idx({0, 2, 3}, {}));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "has sides 0 x 2 x 3");
}

TEST_F(DatasetTest, OneLabelAnImage) {
  WriteGood();
  WriteFile(labels(), Idx({2}, {4, 0}));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "3 images but 2 labels");
}

// Made by a second implementation, in Python, of what the header promises.
TEST(EpochOrder, IsTheSameOnEveryPlatform) {
  EXPECT_THAT(EpochOrder(10, 1, 0), ElementsAre(4, 2, 1, 3, 7, 9, 5, 0, 6, 8));
  EXPECT_THAT(EpochOrder(10, 1, 1), ElementsAre(6, 2, 1, 8, 0, 9, 7, 3, 4, 5));
  EXPECT_THAT(EpochOrder(10, 2, 0), ElementsAre(9, 5, 3, 7, 4, 8, 1, 0, 2, 6));
  const std::vector<uint32_t> large = EpochOrder(60000, 1, 0);
  EXPECT_THAT(std::vector<uint32_t>(large.begin(), large.begin() + 4), ElementsAre(28613, 25360, 40917, 30565));
}

TEST(EpochOrder, BlocksStayAtTheirPositionsAndArePermutedAnewInEachEpoch) {
  std::set<std::vector<uint32_t>> seen;
  for (uint32_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<uint32_t> order = EpochOrder(10, 1, epoch, std::vector<uint32_t>{4, 5, 1});
    seen.insert(order);
    std::sort(order.begin(), order.begin() + 4);
    std::sort(order.begin() + 4, order.begin() + 9);
    EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
  EXPECT_GT(seen.size(), 15u);
}

TEST(EpochOrder, IsAPermutation) {
  for (uint64_t size : {0, 1, 2, 1000}) {
    std::vector<uint32_t> order = EpochOrder(size, 7, 3);
    ASSERT_EQ(order.size(), size);
    std::sort(order.begin(), order.end());
    for (uint32_t i = 0; i < size; ++i) EXPECT_EQ(order[i], i);
  }
}

TEST(BalancedOrder, EachClassIsAsOftenAsAnyOther) {
  // 6 of class 0, 3 of class 2, 1 of class 5.
  const std::vector<uint32_t> labels = {0, 0, 2, 0, 5, 0, 2, 0, 2, 0};
  std::map<uint32_t, int> extra;
  for (uint32_t epoch = 0; epoch < 60; ++epoch) {
    const std::vector<uint32_t> order = BalancedOrder(labels, 3, epoch);
    EXPECT_EQ(order, BalancedOrder(labels, 3, epoch));
    ASSERT_EQ(order.size(), 10u);
    EXPECT_EQ(std::set<uint32_t>(order.begin(), order.end()).size(), 10u) << "each a variation of its own";
    std::map<uint32_t, int> classes;
    for (const uint32_t i : order) ++classes[labels[i % 10]];
    for (const auto& [label, count] : classes) {
      EXPECT_TRUE(count == 3 || count == 4) << count;
      if (count == 4) ++extra[label];
    }
    // The one of class 5 comes for the first time, the second and so on; those of class 2 once, or one of them twice.
    EXPECT_TRUE(std::count(order.begin(), order.end(), 4) == 1 && std::count(order.begin(), order.end(), 14) == 1 &&
                std::count(order.begin(), order.end(), 24) == 1);
    for (const uint32_t i : {2, 6, 8}) EXPECT_EQ(std::count(order.begin(), order.end(), i), 1);
  }
  EXPECT_EQ(extra.size(), 3u) << "what is left over is not always of the same class";
  EXPECT_NE(BalancedOrder(labels, 3, 0), BalancedOrder(labels, 3, 1));
}

TEST_F(DatasetTest, AnImageOnceMoreIsVariedOtherwise) {
  WriteGood();
  const auto data = Read();
  const Variation variation{.augment = {.brightness = 1}, .seed = 1, .epoch = 0};
  Batch batch;
  const auto size = static_cast<uint32_t>(data->size());
  ASSERT_TRUE(data->Load({1, 1 + size, 1 + 2 * size}, 0, 1, batch, &variation).ok());
  EXPECT_THAT(batch.labels, ElementsAre(data->labels()[1], data->labels()[1], data->labels()[1]));
  const std::vector<float> first(batch.images.begin(), batch.images.begin() + 6);
  EXPECT_NE(first, std::vector<float>(batch.images.begin() + 6, batch.images.begin() + 12));
}

TEST(EpochOrder, EveryOrderIsAboutAsLikely) {
  std::map<std::vector<uint32_t>, int> seen;
  for (uint32_t epoch = 0; epoch < 6000; ++epoch) ++seen[EpochOrder(3, 5, epoch)];
  ASSERT_EQ(seen.size(), 6u);
  // 1000 expected, with a standard deviation of 29.
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 1000, 150);
}

TEST(OrderByFile, VisitsFileAfterFileInAnotherOrderEachTime) {
  const std::vector<uint64_t> starts = {0, 4, 5, 9};
  const std::vector<uint32_t> order = OrderByFile(starts, 12, 1, 0);
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<uint32_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  int changes = 0;
  const auto file_of = [&](uint32_t image) { return std::upper_bound(starts.begin(), starts.end(), image); };
  for (size_t i = 1; i < order.size(); ++i) changes += file_of(order[i]) != file_of(order[i - 1]) ? 1 : 0;
  EXPECT_EQ(changes, 3);
  EXPECT_EQ(OrderByFile(starts, 12, 1, 0), order);
  std::set<std::vector<uint32_t>> orders;
  for (uint32_t epoch = 0; epoch < 20; ++epoch) orders.insert(OrderByFile(starts, 12, 1, epoch));
  EXPECT_GE(orders.size(), 19u);
}

TEST(ClassNames, FashionMnistIsKnownByItsFolder) {
  EXPECT_THAT(*ReadClassNames("/nowhere/fashion-mnist/", 10), ::testing::Contains("Ankle boot"));
  EXPECT_THAT(*ReadClassNames("/nowhere/fashion-mnist", 3), ElementsAre("0", "1", "2"));
  EXPECT_THAT(*ReadClassNames("/nowhere/digits", 2), ElementsAre("0", "1"));
}

TEST(ClassNames, FileInTheFolderComesFirst) {
  TemporaryFolder folder;
  const std::string text = "cat\r\ndog\n\n";
  WriteFile(folder / "class-names.txt", Bytes(text.begin(), text.end()));
  EXPECT_THAT(*ReadClassNames(folder.path(), 2), ElementsAre("cat", "dog"));
  EXPECT_THAT(std::string(ReadClassNames(folder.path(), 3).status().message()),
              AllOf(HasSubstr("has 2 names"), HasSubstr("3 classes")));
}

}  // namespace
}  // namespace slackline::images::dataset_test
