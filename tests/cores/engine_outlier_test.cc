// Outliers: pushes whose norm is far above that of the pushes before.
#include "ps/consistency/norm_median.h"
#include "tests/cores/engine_fixture.h"

namespace slackline::ps::engine_outlier_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class OutlierTest : public EngineTest {
 protected:
  void Start(Mode mode, std::vector<Sender> members) {
    EngineConfig config = Config(mode, /*bound=*/100);
    config.outlier_factor = 3;
    config.quorum = 1;
    EngineTest::Start(config, std::move(members));
  }
  // The sender's next push, from the shard's version. `part`: what the shard measures.
  std::vector<std::string> PushNorm(const Sender& sender, double norm, double part = 0) {
    const Sequence sequence = engine_->clock(sender.worker)->Next();
    Actions actions;
    engine_->Push({sender, sequence, engine_->version(), 4, now_, norm, part}, actions);
    return Lines(actions);
  }
  // So many that all are taken.
  void Warm(const std::vector<Sender>& members) {
    for (size_t i = 0; i < NormMedian::kLeast; ++i) {
      for (const Sender& sender : members) PushNorm(sender, 1);
    }
  }
};

TEST_F(OutlierTest, FarAboveTheMedianIsDiscardedAndCountsAsAnswered) {
  Start(Mode::kAsync, {A(), B()});
  Warm({A()});
  const Version before = engine_->version();
  EXPECT_THAT(PushNorm(B(), 3.1), ElementsAre("drop 2:1", "answer 2:1 outlier staleness 0"));
  EXPECT_EQ(engine_->version(), before);
  EXPECT_EQ(engine_->clock(B().worker), Clock64(1));
  EXPECT_THAT(Push(B(), 1), ElementsAre("again 2:1 outlier staleness 0"));
  EXPECT_THAT(PushNorm(B(), 3), Contains(HasSubstr("applied")));
}

TEST_F(OutlierTest, FirstFewAreTakenWhateverTheyAre) {
  Start(Mode::kAsync, {A()});
  for (const double norm : {1, 1, 1000, 1, 1}) EXPECT_THAT(PushNorm(A(), norm), Contains(HasSubstr("applied"))) << norm;
  EXPECT_THAT(PushNorm(A(), 1000), Contains(HasSubstr("outlier")));
}

TEST_F(OutlierTest, FewOutliersDoNotMoveTheMedianAndManyDo) {
  Start(Mode::kAsync, {A()});
  Warm({A()});
  for (int i = 0; i < 5; ++i) EXPECT_THAT(PushNorm(A(), 10), Contains(HasSubstr("outlier"))) << i;
  EXPECT_THAT(PushNorm(A(), 10), Contains(HasSubstr("applied"))) << "they are most of them now";
  for (int i = 0; i < 31; ++i) PushNorm(A(), 2.5);
  EXPECT_THAT(PushNorm(A(), 7.4), Contains(HasSubstr("applied")));
  EXPECT_THAT(PushNorm(A(), 7.6), Contains(HasSubstr("outlier")));
}

TEST_F(OutlierTest, AShardsOwnPartCountsWhateverTheWorkerSays) {
  Start(Mode::kAsync, {A(), B()});
  for (size_t i = 0; i < NormMedian::kLeast; ++i) PushNorm(A(), /*norm=*/8, /*part=*/1);
  EXPECT_THAT(PushNorm(B(), 8, 3.1), ElementsAre("drop 2:1", "answer 2:1 outlier staleness 0"));
  EXPECT_THAT(PushNorm(B(), 0, 3.1), Contains(HasSubstr("outlier")));
  EXPECT_THAT(PushNorm(B(), 8, 3), Contains(HasSubstr("applied")));
  EXPECT_THAT(PushNorm(B(), 25, 1), Contains(HasSubstr("outlier"))) << "wrong elsewhere";
}

TEST_F(OutlierTest, PartsThatAreMostlyZeroTellNothing) {
  Start(Mode::kAsync, {A()});
  for (size_t i = 0; i < NormMedian::kLeast; ++i) PushNorm(A(), 1, 0);
  EXPECT_THAT(PushNorm(A(), 1, 0.5), Contains(HasSubstr("applied")));
}

TEST_F(OutlierTest, WithoutAFactorNothingIsOne) {
  EngineTest::Start(Mode::kAsync, {A()}, 100);
  Warm({A()});
  EXPECT_THAT(PushNorm(A(), 1e30), Contains(HasSubstr("applied")));
}

TEST_F(OutlierTest, BspTakesItsStepWithoutIt) {
  Start(Mode::kBsp, {A(), B()});
  Warm({A(), B()});
  PushNorm(A(), 1);
  EXPECT_THAT(PushNorm(B(), 50), ElementsAre("drop 2:6", "answer 2:6 outlier staleness 0",
                                             "apply 1:6*1 lr*1 average*1 -> 1.6", "answer 1:6 applied staleness 0"));
}

TEST_F(OutlierTest, BspGoesOnWhenAllAreOutliers) {
  Start(Mode::kBsp, {A(), B()});
  Warm({A(), B()});
  PushNorm(A(), 50);
  EXPECT_THAT(PushNorm(B(), 50), Not(Contains(HasSubstr("apply"))));
  EXPECT_THAT(Pull(A(), 1, 6), ElementsAre("serve 1 pull 1"));
  PushNorm(A(), 1);
  EXPECT_THAT(PushNorm(B(), 1), Contains(HasSubstr("apply 1:7*0.5 2:7*0.5")));
}

TEST_F(OutlierTest, SoftsyncAndQuorumMakeTheirStepsOfOthers) {
  for (const Mode mode : {Mode::kSoftsync, Mode::kQuorum}) {
    Start(mode, {A(), B()});
    Warm({A(), B()});
    PushNorm(A(), 1);
    EXPECT_THAT(PushNorm(B(), 50), ElementsAre("drop 2:6", "answer 2:6 outlier staleness 0"));
    EXPECT_THAT(PushNorm(B(), 1), Contains(HasSubstr("apply 1:6*0.5 2:7*0.5")));
  }
}

TEST_F(OutlierTest, QuorumWaitsForAWorkerThatIsQuarantinedAndGoesOn) {
  Start(Mode::kQuorum, {A(), B()});
  Warm({A(), B()});
  PushNorm(A(), 1);
  PushNorm(B(), 50);
  EXPECT_THAT(After(absl::Minutes(1)), Not(Contains(HasSubstr("apply"))));
}

}  // namespace
}  // namespace slackline::ps::engine_outlier_test
