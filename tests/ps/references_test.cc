#include "ps/shard/references.h"

#include <gtest/gtest.h>

#include <vector>

namespace slackline::ps::references_test {
namespace {

const Sender kAlice{WorkerId(1), Incarnation(11)};
const Sender kBob{WorkerId(2), Incarnation(12)};

Version V(uint64_t number) { return {Lineage(1), number}; }

class ReferencesTest : public testing::Test {
 protected:
  // The shard takes a step, and the worker is sent its new version.
  void Send(const Sender& worker, uint64_t number, uint32_t window = 1) {
    slice_.Update([&](uint64_t, absl::Span<float> values) { values[0] = static_cast<float>(number); });
    references_.Sent(worker, window, V(number), slice_.View());
  }
  // The versions that are kept, which have the values that they had.
  std::vector<uint64_t> Kept() {
    std::vector<uint64_t> kept;
    for (uint64_t number = 0; number < 10; ++number) {
      const SliceView* const view = references_.Find(V(number));
      if (view == nullptr) continue;
      EXPECT_EQ(view->chunk(0)[0], static_cast<float>(number));
      kept.push_back(number);
    }
    EXPECT_EQ(kept.size(), references_.versions());
    return kept;
  }
  using Numbers = std::vector<uint64_t>;

  Slice slice_{{.elements = 8, .chunk_elements = 8}};
  References references_{3};
};

TEST_F(ReferencesTest, AVersionIsLetGoWhenItsWorkerIsSentTheNext) {
  Send(kAlice, 1);
  Send(kBob, 2);
  EXPECT_EQ(Kept(), Numbers({1, 2}));
  Send(kAlice, 3);
  EXPECT_EQ(Kept(), Numbers({2, 3}));
}

TEST_F(ReferencesTest, AVersionOfTwoWorkersStaysUntilBothHaveTheNext) {
  Send(kAlice, 1);
  references_.Sent(kBob, 1, V(1), slice_.View());
  Send(kAlice, 2);
  EXPECT_EQ(Kept(), Numbers({1, 2}));
  Send(kBob, 3);
  EXPECT_EQ(Kept(), Numbers({2, 3}));
}

TEST_F(ReferencesTest, WithSeveralStepsInFlightAsManyAreKept) {
  Send(kAlice, 1, 2);
  Send(kAlice, 2, 2);
  references_.Sent(kAlice, 2, V(2), slice_.View());  // the same again
  EXPECT_EQ(Kept(), Numbers({1, 2}));
  Send(kAlice, 3, 2);
  EXPECT_EQ(Kept(), Numbers({2, 3}));
}

TEST_F(ReferencesTest, BeyondTheBoundTheOldestIsLetGo) {
  for (uint64_t number = 1; number <= 5; ++number) Send(kAlice, number, 9);
  EXPECT_EQ(Kept(), Numbers({3, 4, 5}));
  // Its users may go, or be sent it again.
  references_.Sent(kBob, 1, V(1), slice_.View());
  EXPECT_EQ(references_.versions(), 3u);
  references_.Forget({kAlice, kBob});
  EXPECT_EQ(Kept(), Numbers());
}

TEST_F(ReferencesTest, OnlyMembersCanPush) {
  Send(kAlice, 1);
  Send(kBob, 2);
  references_.Forget({kAlice});
  EXPECT_EQ(Kept(), Numbers({2}));
  references_.Forget({{kBob.worker, Incarnation(13)}});
  EXPECT_EQ(Kept(), Numbers({2}));
  references_.Forget({kBob});
  EXPECT_EQ(Kept(), Numbers());
}

TEST_F(ReferencesTest, APushThatWaitsForItsStepKeepsItsVersion) {
  Send(kAlice, 1);
  {
    const References::Use push(&references_, V(1));
    Send(kAlice, 2);
    references_.Forget({kAlice});
    EXPECT_EQ(Kept(), Numbers({1}));
  }
  EXPECT_EQ(Kept(), Numbers());
}

TEST_F(ReferencesTest, AVersionThatNobodyWasSentIsNotThere) {
  const References::Use push(&references_, V(7));
  EXPECT_EQ(references_.Find(V(7)), nullptr);
  EXPECT_EQ(references_.Find({Lineage(2), 1}), nullptr);
}

}  // namespace
}  // namespace slackline::ps::references_test
