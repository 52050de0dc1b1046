#include "images/dataset/prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/synchronization/notification.h"
#include "common/time/clock.h"
#include "tests/images/test_data.h"

namespace slackline::images::prefetcher_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Long enough for any machine; a wait that ends by it fails the test.
constexpr absl::Duration kLong = absl::Seconds(60);

// 200 images of 1 x 1; the pixel of image i is i, its label i modulo 10.
class PrefetcherTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kImages = 200;

  PrefetcherTest() {
    Bytes pixels(kImages), labels(kImages);
    std::iota(pixels.begin(), pixels.end(), 0);
    for (uint32_t i = 0; i < kImages; ++i) labels[i] = static_cast<uint8_t>(i % 10);
    WriteFile(folder_ / "train-images-idx3-ubyte", Idx({kImages, 1, 1}, pixels));
    WriteFile(folder_ / "train-labels-idx1-ubyte", Idx({kImages}, labels));
    data_ = std::make_unique<Dataset>(*Dataset::ReadIdx(folder_.path(), "train"));
  }

  static std::vector<uint32_t> Range(uint32_t begin, uint32_t end) {
    std::vector<uint32_t> indices(end - begin);
    std::iota(indices.begin(), indices.end(), begin);
    return indices;
  }
  // The images of the next batch; empty at the end of the range.
  static std::vector<uint32_t> NextImages(Prefetcher& prefetcher) {
    absl::StatusOr<std::unique_ptr<Batch>> batch = prefetcher.Next(kLong);
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || *batch == nullptr) return {};
    std::vector<uint32_t> images;
    for (float pixel : (*batch)->images) images.push_back(static_cast<uint32_t>(pixel * 255 + 0.5f));
    for (size_t i = 0; i < images.size(); ++i) EXPECT_EQ((*batch)->labels[i], images[i] % 10);
    prefetcher.Recycle(*std::move(batch));
    return images;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Dataset> data_;
};

TEST_F(PrefetcherTest, BatchesComeInOrderAndTheLastIsShorter) {
  Prefetcher prefetcher(*data_, {}, 2);
  prefetcher.Start({5, 3, 8, 199, 0}, 2);
  EXPECT_THAT(NextImages(prefetcher), ElementsAre(5, 3));
  EXPECT_THAT(NextImages(prefetcher), ElementsAre(8, 199));
  EXPECT_THAT(NextImages(prefetcher), ElementsAre(0));
  EXPECT_TRUE(NextImages(prefetcher).empty());
  EXPECT_TRUE(NextImages(prefetcher).empty());
}

TEST_F(PrefetcherTest, BeforeTheFirstRangeThereIsNothing) {
  Prefetcher prefetcher(*data_, {}, 2);
  EXPECT_TRUE(NextImages(prefetcher).empty());
}

TEST_F(PrefetcherTest, NewRangeForgetsWhatWasLeft) {
  Prefetcher prefetcher(*data_, {}, 3);
  for (uint32_t round = 0; round < 500; ++round) {
    const uint32_t begin = round % 100;
    prefetcher.Start(Range(begin, begin + 50), 7);
    // Restarts before, while and after batches are made.
    for (uint32_t batch = 0; batch < round % 4; ++batch) {
      const uint32_t first = begin + batch * 7;
      ASSERT_EQ(NextImages(prefetcher), Range(first, first + 7)) << "round " << round;
    }
  }
  prefetcher.Start({1}, 1);
  EXPECT_THAT(NextImages(prefetcher), ElementsAre(1));
  EXPECT_TRUE(NextImages(prefetcher).empty());
}

TEST_F(PrefetcherTest, RecycledMemoryIsUsedAgain) {
  Prefetcher prefetcher(*data_, {}, 2);
  prefetcher.Start(Range(0, kImages), 1);
  std::set<const float*> memory;
  for (uint32_t i = 0; i < kImages; ++i) {
    absl::StatusOr<std::unique_ptr<Batch>> batch = prefetcher.Next(kLong);
    ASSERT_TRUE(batch.ok());
    memory.insert((*batch)->images.data());
    prefetcher.Recycle(*std::move(batch));
  }
  // Two ready, one in each hand.
  EXPECT_LE(memory.size(), 4u);
}

TEST_F(PrefetcherTest, WaitEndsWithTheDeadlineAndSaysHowFarTheThreadIs) {
  Prefetcher prefetcher(*data_, {}, 1);
  absl::Status status;
  // A batch this large is not made before the caller asks for it.
  while (status.ok()) {
    prefetcher.Start(std::vector<uint32_t>(1 << 20, 7), 1 << 20);
    status = prefetcher.Next(absl::ZeroDuration()).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of 1048576 images"));
}

// Decodes for as long as it is told, or hangs.
struct SlowSource : ImageSource {
  absl::Status Read(uint32_t, absl::Span<uint8_t> out) const override {
    const ThreadTime used;
    for (const absl::Time end = used.Now() + decodes; used.Now() < end;) {
    }
    if (hangs) released.WaitForNotification();
    absl::c_fill(out, uint8_t{1});
    return absl::OkStatus();
  }
  absl::Duration decodes;
  bool hangs = false;
  absl::Notification released;
};

TEST_F(PrefetcherTest, BatchThatIsDecodedMayTakeLongerAndOneThatHangsMayNot) {
  for (const bool hangs : {false, true}) {
    const auto source = std::make_shared<SlowSource>();
    source->decodes = hangs ? absl::ZeroDuration() : absl::Milliseconds(700);
    source->hangs = hangs;
    const Dataset data = Dataset::FromSource(source, {.channels = 1, .height = 1, .width = 1}, {0});
    Prefetcher prefetcher(data, {}, 1);
    prefetcher.Start({0}, 1);
    const absl::Status status = prefetcher.Next(absl::Milliseconds(500)).status();
    EXPECT_EQ(status.code(), hangs ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kOk) << status;
    source->released.Notify();
  }
}

TEST_F(PrefetcherTest, SeveralThreadsGiveTheSameBatchesInTheSameOrder) {
  Prefetcher prefetcher(*data_, {}, 2, {}, 0, /*threads=*/4);
  for (uint32_t round = 0; round < 300; ++round) {
    const uint32_t begin = round % 100;
    prefetcher.Start(Range(begin, begin + 90), 7);
    for (uint32_t first = begin; first < begin + 90; first += 7) {
      if (round % 3 == 1 && first > begin + round % 50) break;  // given up in the middle
      ASSERT_EQ(NextImages(prefetcher), Range(first, std::min(first + 7, begin + 90))) << "round " << round;
    }
    if (round % 3 == 1) continue;
    ASSERT_TRUE(NextImages(prefetcher).empty());
  }
}

TEST_F(PrefetcherTest, SeveralThreadsKeepWithinTheirMemory) {
  Prefetcher prefetcher(*data_, {}, 1, {}, 0, /*threads=*/3);
  prefetcher.Start(Range(0, kImages), 1);
  std::set<const float*> memory;
  for (uint32_t i = 0; i < kImages; ++i) {
    absl::StatusOr<std::unique_ptr<Batch>> batch = prefetcher.Next(kLong);
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ((*batch)->labels[0], i % 10);
    memory.insert((*batch)->images.data());
    prefetcher.Recycle(*std::move(batch));
  }
  EXPECT_LE(memory.size(), 3u + 2u);
}

TEST_F(PrefetcherTest, CanBeDestroyedInTheMiddle) {
  for (int round = 0; round < 100; ++round) {
    Prefetcher prefetcher(*data_, {}, 2);
    prefetcher.Start(Range(0, kImages), 3);
    if (round % 2 == 0) NextImages(prefetcher);
  }
}

// Image i is one pixel of value i, but for one that cannot be read.
class OneIsBroken final : public ImageSource {
 public:
  explicit OneIsBroken(uint32_t broken) : broken_(broken) {}
  absl::Status Read(uint32_t index, absl::Span<uint8_t> out) const override {
    if (index == broken_) return absl::DataLossError("image is broken");
    out[0] = static_cast<uint8_t>(index);
    return absl::OkStatus();
  }

 private:
  const uint32_t broken_;
};

TEST(Prefetcher, AnImageThatCannotBeReadIsTheConsumersError) {
  for (const uint32_t threads : {1u, 3u}) {
    const ImageShape shape{.channels = 1, .height = 1, .width = 1};
    const Dataset data = Dataset::FromSource(std::make_shared<OneIsBroken>(5), shape, std::vector<uint32_t>(10, 0));
    Prefetcher prefetcher(data, {}, 2, {}, 1, threads);
    prefetcher.Start({0, 1, 2, 3, 4}, 2);
    int batches = 0;
    for (;;) {
      auto batch = prefetcher.Next(kLong);
      ASSERT_TRUE(batch.ok()) << batch.status();
      if (*batch == nullptr) break;
      EXPECT_EQ((*batch)->images[0], static_cast<float>(2 * batches++) / 255);
    }
    EXPECT_EQ(batches, 3);
    prefetcher.Start({6, 5, 7, 8}, 2);
    absl::Status status;
    for (int i = 0; i < 3 && status.ok(); ++i) status = prefetcher.Next(kLong).status();
    EXPECT_EQ(status, absl::DataLossError("image is broken"));
  }
}

}  // namespace
}  // namespace slackline::images::prefetcher_test
