// Parts of the client that need no network: silent servers, arriving weights, and back-off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/time/backoff.h"
#include "worker/client/pull_writer.h"
#include "worker/client/silence_watch.h"

namespace slackline::worker::client_parts_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

class SilenceWatchTest : public testing::Test {
 protected:
  absl::Time At(int64_t ms) const { return absl::UnixEpoch() + absl::Milliseconds(ms); }

  std::vector<std::string> notices_;
  std::vector<ServerInfo> servers_ = {{ServerId(1), "ps-1", "a:1"}, {ServerId(2), "ps-2", "b:2"}};
  SilenceWatch watch_{servers_, absl::Milliseconds(300), [this](const std::string& text) { notices_.push_back(text); }};
  std::vector<std::vector<ShardId>> awaited_ = {{ShardId(0), ShardId(4)}, {}};
};

TEST_F(SilenceWatchTest, TimeoutRunsAnewWithEveryWord) {
  watch_.Begin("step 5", absl::Seconds(1), At(0));
  for (int64_t ms = 900; ms < 10'000; ms += 900) {
    watch_.HeardWaiting(0, "awaiting worker-2", At(ms));
    EXPECT_EQ(watch_.Check(awaited_, At(ms + 899)), absl::OkStatus());
  }
  EXPECT_EQ(watch_.Check(awaited_, At(10'900)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SilenceWatchTest, OnlyServersThatAreAwaitedCanBeLate) {
  watch_.Begin("step 5", absl::Seconds(1), At(0));
  watch_.Heard(0, At(900));
  EXPECT_EQ(watch_.Check(awaited_, At(1500)), absl::OkStatus());
}

TEST_F(SilenceWatchTest, NoticesAreGivenOnceAPeriod) {
  watch_.Begin("step 5", absl::Seconds(1), At(0));
  EXPECT_EQ(watch_.next(), At(300));
  ASSERT_TRUE(watch_.Check(awaited_, At(299)).ok());
  EXPECT_THAT(notices_, SizeIs(0));
  ASSERT_TRUE(watch_.Check(awaited_, At(300)).ok());
  ASSERT_TRUE(watch_.Check(awaited_, At(301)).ok());
  ASSERT_THAT(notices_, SizeIs(1));
  EXPECT_THAT(notices_[0],
              AllOf(HasSubstr("step 5"), HasSubstr("ps-1 (a:1)"), HasSubstr("shard 0, 4"), HasSubstr("300ms")));
  EXPECT_EQ(watch_.next(), At(600));
}

TEST_F(SilenceWatchTest, ManyShardsBehindOneGateAreOneNotice) {
  watch_.Begin("step 5", absl::Seconds(1), At(0));
  watch_.HeardWaiting(0, "awaiting worker-2 (shard 0)", At(10));
  watch_.HeardWaiting(0, "awaiting worker-2 (shard 4)", At(11));
  EXPECT_THAT(notices_, SizeIs(1));
}

class PullWriterTest : public testing::Test {
 protected:
  // The floats of `values` in pieces of 3 bytes, so that every float lies across a border and is not aligned.
  ByteSegments Pieces(absl::Span<const float> values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    const size_t size = values.size() * sizeof(float);
    ByteSegments pieces;
    for (size_t i = 0; i < size; i += 3) pieces.Append({bytes + i, std::min<size_t>(3, size - i)});
    return pieces;
  }
  absl::Status Write(uint64_t offset, const Version& version, const std::vector<float>& values) {
    return writer_.Write({offset, values.size(), {}, version}, Pieces(values), absl::MakeSpan(shard_));
  }

  const Version version_{Lineage(1), 4};
  std::vector<float> shard_ = std::vector<float>(5, 0);
  PullWriter writer_;
};

TEST_F(PullWriterTest, WritesPiecesWhereTheyBelong) {
  const std::vector<float> first = {1, 2, 3}, second = {4, 5};
  ASSERT_TRUE(Write(0, version_, first).ok());
  ASSERT_TRUE(Write(3, version_, second).ok());
  EXPECT_TRUE(writer_.Finish(version_, false, {5, 5}).ok());
  EXPECT_THAT(shard_, testing::ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(PullWriterTest, RefusesGapsMixturesAndShortPulls) {
  const std::vector<float> first = {1, 2, 3}, second = {4, 5};
  ASSERT_TRUE(Write(0, version_, first).ok());
  EXPECT_FALSE(Write(4, version_, second).ok());
  EXPECT_FALSE(Write(3, {Lineage(1), 5}, second).ok());
  EXPECT_FALSE(Write(3, version_, first).ok());
  EXPECT_FALSE(writer_.Finish(version_, false, {5, 5}).ok());
  EXPECT_TRUE(writer_.Finish(version_, true, {5, 5}).ok());  // the next one: nothing has come, nothing has changed
}

TEST_F(PullWriterTest, WhatIsFrozenNeedNotComeAgain) {
  const std::vector<float> first = {1, 2, 3};
  ASSERT_TRUE(Write(0, version_, first).ok());
  EXPECT_EQ(writer_.Finish(version_, false, {.shard = 5, .pushed = 3}).value_or(0), 3u);
  ASSERT_TRUE(Write(0, version_, first).ok());
  EXPECT_FALSE(writer_.Finish(version_, false, {.shard = 5, .pushed = 5}).ok());
  // A shard that is frozen as a whole.
  EXPECT_EQ(writer_.Finish({Lineage(1), 9}, false, {.shard = 5, .pushed = 0}).value_or(1), 0u);
}

TEST(Backoff, DoublesUpToItsLimitAndBeginsAnew) {
  Backoff backoff(1);
  for (const int64_t base_ms : {20, 40, 80, 160, 320, 640, 1280, 2000, 2000}) {
    const absl::Duration wait = backoff.Next();
    EXPECT_GE(wait, absl::Milliseconds(base_ms) / 2);
    EXPECT_LE(wait, absl::Milliseconds(base_ms));
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(20));
}

}  // namespace
}  // namespace slackline::worker::client_parts_test
