// Modes that make one step of several pushes, and the weights of the pushes: scenarios worked out by hand.
#include "tests/cores/engine_fixture.h"

namespace slackline::ps::engine_modes_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class SoftsyncTest : public EngineTest {
 protected:
  // Steps of live workers / n pushes.
  void Start(uint64_t n, std::vector<Sender> members, StalenessLr staleness_lr = StalenessLr::kNone) {
    EngineTest::Start(Softsync(n, staleness_lr), std::move(members));
  }
  static EngineConfig Softsync(uint64_t n, StalenessLr staleness_lr = StalenessLr::kNone) {
    EngineConfig config = Config(Mode::kSoftsync);
    config.softsync_n = n;
    config.staleness_lr = staleness_lr;
    return config;
  }
};

TEST_F(SoftsyncTest, TakesAStepForTheMeanOfAGroupAndLetsNobodyWait) {
  Start(2, {A(), B(), C(), D()});
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}, 1), ElementsAre("answer 1:1 applied staleness 0"));
  EXPECT_THAT(Pull(A(), 1, 1), ElementsAre("serve 1 pull 1"));
  EXPECT_EQ(engine_->version().number, 0u) << "its push waits for another";
  EXPECT_EQ(engine_->held_pushes(), 1u);
  EXPECT_THAT(Push(B(), 1, {Lineage(1), 0}, 3),
              ElementsAre("apply 1:1*0.25 2:1*0.75 lr*1 average*0.5 -> 1.1", "answer 2:1 applied staleness 0"));
  EXPECT_EQ(engine_->held_pushes(), 0u);
}

TEST_F(SoftsyncTest, AWorkerMayBeInAGroupTwice) {
  Start(1, {A(), B()});
  Push(A(), 1);
  EXPECT_THAT(Push(A(), 2),
              ElementsAre("apply 1:1*0.5 1:2*0.5 lr*1 average*1 -> 1.1", "answer 1:2 applied staleness 0"));
}

TEST_F(SoftsyncTest, AsManyGroupsAsWorkersAreAsync) {
  Start(9, {A(), B()});
  EXPECT_THAT(Push(A(), 1), ElementsAre("apply 1:1*1 lr*1 average*0.5 -> 1.1", "answer 1:1 applied staleness 0"));
}

TEST_F(SoftsyncTest, InverseWeightsTheMeanByStalenessAndTheLearningRateByWhatIsLeft) {
  Start(2, {A(), B(), C(), D()}, StalenessLr::kInverse);
  Push(A(), 1, {Lineage(1), 0});
  Push(B(), 1, {Lineage(1), 0});
  Push(C(), 1, {Lineage(1), 0});
  // Stalenesses 1 and 0 both count as one whole.
  EXPECT_THAT(Push(A(), 2, {Lineage(1), 1}),
              ElementsAre("apply 3:1*0.5~1 1:2*0.5 lr*1 average*0.5 -> 1.2", "answer 1:2 applied staleness 0"));
  Push(D(), 1, {Lineage(1), 0}, 4);
  // Half of 0.5 and the whole of 0.5: together 0.75, of which one third and two thirds.
  EXPECT_THAT(
      Push(A(), 3, {Lineage(1), 2}, 4),
      ElementsAre("apply 4:1*0.333333~2 1:3*0.666667 lr*0.75 average*0.5 -> 1.3", "answer 1:3 applied staleness 0"));
}

TEST_F(SoftsyncTest, WhatWasAcceptedSurvivesItsWorker) {
  Start(1, {A(), B(), C(), D()});
  Push(A(), 1);
  Push(B(), 1);
  Push(C(), 1);
  EXPECT_THAT(Members(2, {A(), D()}), ElementsAre("apply 1:1*0.5 2:1*0.5 lr*1 average*1 -> 1.1"));
  EXPECT_EQ(engine_->held_pushes(), 1u);
  EXPECT_THAT(Push(D(), 1, {Lineage(1), 0}),
              ElementsAre("apply 3:1*0.5~1 4:1*0.5~1 lr*1 average*1 -> 1.2", "answer 4:1 applied staleness 1"));
}

TEST_F(SoftsyncTest, GroupsThatBecomeFullWhenWorkersLeaveAreOneStepEachWithTheirTrueStaleness) {
  Start(1, {A(), B(), C(), D()});
  EXPECT_THAT(Push(A(), 1), ElementsAre("answer 1:1 applied staleness 0"));
  EXPECT_THAT(Push(B(), 1), ElementsAre("answer 2:1 applied staleness 0"));
  EXPECT_THAT(Push(B(), 2), ElementsAre("answer 2:2 applied staleness 0"));
  EXPECT_THAT(Members(2, {A()}), ElementsAre("apply 1:1*1 lr*1 average*1 -> 1.1", "apply 2:1*1~1 lr*1 average*1 -> 1.2",
                                             "apply 2:2*1~2 lr*1 average*1 -> 1.3"));
}

TEST_F(SoftsyncTest, TheLastOneToLeaveTakesTheLastStep) {
  Start(1, {A(), B(), C(), D()});
  Push(A(), 1);
  Push(B(), 1);
  EXPECT_THAT(Members(2, {}), ElementsAre("apply 1:1*0.5 2:1*0.5 lr*1 average*0.5 -> 1.1"));
  EXPECT_EQ(engine_->samples_applied(), 8u);
}

TEST_F(SoftsyncTest, ANewMemberMakesTheOpenGroupLarger) {
  Start(1, {A(), B()});
  Push(A(), 1);
  EXPECT_THAT(Members(2, {A(), B(), C()}), IsEmpty());
  EXPECT_THAT(Push(B(), 1), ElementsAre("answer 2:1 applied staleness 0"));
  EXPECT_THAT(Push(C(), 1),
              ElementsAre(HasSubstr("apply 1:1*0.333333 2:1*0.333333 3:1*0.333333"), HasSubstr("answer")));
}

TEST_F(SoftsyncTest, RepetitionsOfAnAcceptedPushChangeNothing) {
  Start(1, {A(), B(), C(), D()});
  Push(A(), 1);
  EXPECT_EQ(engine_->Admit(A(), Sequence(1)), Engine::Admission::kIgnore);
  EXPECT_THAT(Push(A(), 1), ElementsAre("again 1:1 applied staleness 0"));
  EXPECT_EQ(engine_->held_pushes(), 1u);
  // Two answers later it is forgotten. The push is not.
  Push(A(), 2);
  Push(A(), 3);
  EXPECT_THAT(Push(A(), 1), ElementsAre(HasSubstr("OUT_OF_RANGE")));
  EXPECT_THAT(Push(B(), 1), ElementsAre(HasSubstr("apply 1:1*0.25 1:2*0.25 1:3*0.25 2:1*0.25"), HasSubstr("answer")));
}

TEST_F(SoftsyncTest, ARestoreReportsAcceptedPushesAsLost) {
  Start(1, {A(), B()});
  Push(A(), 1);
  Push(B(), 1);  // 1.1
  Push(A(), 2);
  const Version before = engine_->version();
  const EngineState manifest = engine_->Snapshot();
  EXPECT_EQ(manifest.version, before);
  EXPECT_EQ(manifest.samples_applied, 8u);

  engine_.emplace(Softsync(1), manifest);
  Members(9, {A(), B()});
  EXPECT_EQ(engine_->held_pushes(), 0u);
  EXPECT_THAT(Hello(A(), 0, 2), ElementsAre("lost 1 (1, 2]"));
  EXPECT_THAT(Hello(B(), 0, 1), IsEmpty());

  // Had its answer not arrived, the worker would repeat the push, which is of the old lineage now.
  engine_.emplace(Softsync(1), manifest);
  Members(9, {A(), B()});
  EXPECT_THAT(Hello(A(), 0, 1), IsEmpty());
  EXPECT_THAT(Push(A(), 2, before), ElementsAre("drop 1:2", "answer 1:2 discarded staleness 0"));
}

TEST_F(SoftsyncTest, AWorkerNeverHeardOfBeginsAnewAfterARestore) {
  Start(1, {A(), B()});
  Push(A(), 1);
  Push(A(), 2);
  Push(B(), 1);  // accepted
  Members(2, {A(), B(), C()});
  EXPECT_EQ(engine_->clock(C().worker), Clock64(1));
  engine_.emplace(Softsync(1), engine_->Snapshot());
  Members(3, {A(), B(), C()});
  EXPECT_EQ(engine_->clock_min(), Clock64(0));
  // No later than the slowest clock that the scheduler is told: it may be the first clock of C.
  EXPECT_EQ(engine_->clock(C().worker), Clock64(0));
}

class QuorumTest : public EngineTest {
 protected:
  void Start(double quorum, std::vector<Sender> members, absl::Duration deadline = absl::ZeroDuration(),
             bool count_late = false) {
    EngineConfig config = Config(Mode::kQuorum);
    config.quorum = quorum;
    config.quorum_deadline = deadline;
    config.count_late = count_late;
    EngineTest::Start(config, std::move(members));
  }
  // After a first step of A and B at 100 ms. C takes 110 ms to push, and D 300 ms; C has pulled the version at 110 ms.
  void StartWithGrace(absl::Duration deadline = absl::ZeroDuration()) {
    EngineConfig config = Config(Mode::kQuorum);
    config.quorum = 0.5;
    config.quorum_deadline = deadline;
    config.grace = true;
    EngineTest::Start(config, {A(), B(), C(), D()});
    for (const Sender& sender : {A(), B(), C(), D()}) Pull(sender, 1, 0);
    After(absl::Milliseconds(100));
    Push(A(), 1);
    EXPECT_THAT(Push(B(), 1), Contains(HasSubstr("-> 1.1"))) << "nothing is known of C and D";
    Turn(A(), 1);
    Turn(B(), 1);
    After(absl::Milliseconds(10));
    EXPECT_THAT(Push(C(), 1, {Lineage(1), 0}), ElementsAre("drop 3:1", "answer 3:1 late staleness 0"));
    Turn(C(), 1);
    After(absl::Milliseconds(90));
  }
  // Pulls after the push with this sequence.
  void Turn(const Sender& sender, uint64_t sequence) { EXPECT_THAT(Pull(sender, sequence + 1, sequence), SizeIs(1)); }
  void StartCountingLate(double quorum, std::vector<Sender> members) {
    Start(quorum, std::move(members), absl::ZeroDuration(), /*count_late=*/true);
  }
};

TEST_F(QuorumTest, TakesAStepWhenEnoughAreThereAndDiscardsTheRestAtOnce) {
  Start(0.75, {A(), B(), C(), D()});
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}, 2), IsEmpty());
  EXPECT_THAT(Push(B(), 1, {Lineage(1), 0}, 1), IsEmpty());
  EXPECT_THAT(Pull(A(), 1, 1), IsEmpty());
  EXPECT_THAT(Push(C(), 1, {Lineage(1), 0}, 1),
              ElementsAre("apply 1:1*0.5 2:1*0.25 3:1*0.25 lr*1 average*0.75 -> 1.1", "answer 1:1 applied staleness 0",
                          "answer 2:1 applied staleness 0", "answer 3:1 applied staleness 0", "serve 1 pull 1"));
  EXPECT_THAT(Pull(D(), 1, 1), IsEmpty());
  EXPECT_THAT(Push(D(), 1, {Lineage(1), 0}), ElementsAre("drop 4:1", "answer 4:1 late staleness 0", "serve 4 pull 1"));
  EXPECT_EQ(engine_->clock(D().worker), Clock64(1));
}

TEST_F(QuorumTest, ALateWorkerJoinsTheStepThatIsOpenWhateverItsClock) {
  Start(0.5, {A(), B()});
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Push(A(), sequence);
  EXPECT_THAT(Push(B(), 1, {Lineage(1), 1}), ElementsAre("drop 2:1", "answer 2:1 late staleness 0"));
  EXPECT_THAT(Push(B(), 2, {Lineage(1), 3}),
              ElementsAre("apply 2:2*1 lr*1 average*0.5 -> 1.4", "answer 2:2 applied staleness 0"));
}

TEST_F(QuorumTest, IsAsLargeAsItsShareOfTheLiveWorkersRoundedUp) {
  struct Case {
    double quorum;
    uint32_t live;
    uint64_t needed;
  };
  for (const Case& c : {Case{0.75, 4, 3}, {0.75, 5, 4}, {0.75, 1, 1}, {0.5, 3, 2}, {1, 3, 3}, {0.55, 20, 11}}) {
    std::vector<Sender> members;
    for (uint32_t i = 1; i <= c.live; ++i) members.push_back({WorkerId(i), Incarnation(i)});
    Start(c.quorum, members);
    for (uint64_t held = 0; held < c.needed; ++held) {
      EXPECT_EQ(engine_->held_pushes(), held) << c.quorum << " of " << c.live;
      Push(members[held], 1);
    }
    EXPECT_EQ(engine_->version().number, 1u) << c.quorum << " of " << c.live;
  }
}

TEST_F(QuorumTest, TheDeadlineCountsFromTheFirstPushOfTheStep) {
  Start(0.75, {A(), B(), C(), D()}, absl::Milliseconds(100));
  EXPECT_THAT(After(absl::Milliseconds(500)), IsEmpty()) << "nothing to apply";
  Push(A(), 1, {Lineage(1), 0}, 1);
  EXPECT_THAT(After(absl::Milliseconds(60)), IsEmpty());
  Push(B(), 1, {Lineage(1), 0}, 3);
  EXPECT_THAT(After(absl::Milliseconds(39)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)),
              ElementsAre("apply 1:1*0.25 2:1*0.75 lr*1 average*0.5 -> 1.1", "answer 1:1 applied staleness 0",
                          "answer 2:1 applied staleness 0"));
  EXPECT_THAT(After(absl::Milliseconds(500)), IsEmpty());
  EXPECT_THAT(Push(C(), 1, {Lineage(1), 0}), ElementsAre("drop 3:1", "answer 3:1 late staleness 0"));
}

TEST_F(QuorumTest, GraceIsForPushesThatUsuallyComeSoon) {
  StartWithGrace();
  Push(A(), 2);
  EXPECT_THAT(Push(B(), 2), IsEmpty()) << "C is likely to come at 220 ms";
  After(absl::Milliseconds(15));
  EXPECT_THAT(Push(C(), 2), Contains(HasSubstr("apply 1:2*0.333333 2:2*0.333333 3:2*0.333333"))) << "D is not awaited";
  for (const Sender& sender : {A(), B(), C()}) Turn(sender, 2);
  After(absl::Milliseconds(85));
  EXPECT_THAT(Push(D(), 1, {Lineage(1), 0}), Contains("answer 4:1 late staleness 0"));
  Turn(D(), 1);
  After(absl::Milliseconds(15));
  Push(A(), 3);
  EXPECT_THAT(Push(B(), 3), IsEmpty()) << "C is likely to come by 330 ms, D at 600 ms";
  EXPECT_THAT(After(absl::Milliseconds(14)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)), Contains(HasSubstr("apply 1:3*0.5 2:3*0.5")))
      << "C has not come, D is too slow";
}

TEST_F(QuorumTest, GraceIsForNobodyWhoComesBehindTheDeadlineAndEndsWhenTheAwaitedOneLeaves) {
  StartWithGrace(absl::Milliseconds(19));
  Push(A(), 2);
  EXPECT_THAT(Push(B(), 2), Contains(HasSubstr("apply 1:2*0.5 2:2*0.5"))) << "C is likely to come after 20 ms";
  StartWithGrace();
  Push(A(), 2);
  Push(B(), 2);
  EXPECT_THAT(Members(2, {A(), B(), D()}), Contains(HasSubstr("apply 1:2*0.5 2:2*0.5")));
}

TEST_F(QuorumTest, ARestoredShardHasNoGraceBeforeItsFirstStep) {
  StartWithGrace();
  EngineConfig config = Config(Mode::kQuorum);
  config.quorum = 0.5;
  config.grace = true;
  const EngineState state = engine_->Snapshot();
  engine_.emplace(config, state);
  Members(2, {A(), B(), C(), D()});
  Push(A(), 2);
  EXPECT_THAT(Push(B(), 2), Contains(HasSubstr("apply 1:2*0.5 2:2*0.5")));
}

TEST_F(QuorumTest, ASecondPushFromTheSameBaseIsLateWhenItsTurnComes) {
  Start(0.75, {A(), B(), C()});
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}), IsEmpty());
  EXPECT_THAT(Push(A(), 2, {Lineage(1), 0}), IsEmpty());
  EXPECT_THAT(Push(B(), 1, {Lineage(1), 0}), IsEmpty()) << "two of three, not three";
  EXPECT_EQ(engine_->held_pushes(), 3u);
  EXPECT_THAT(Push(C(), 1, {Lineage(1), 0}),
              ElementsAre(HasSubstr("apply 1:1*0.333333 2:1*0.333333 3:1*0.333333"), HasSubstr("answer 1:1 applied"),
                          HasSubstr("answer 2:1 applied"), HasSubstr("answer 3:1 applied"), "drop 1:2",
                          "answer 1:2 late staleness 0"));
}

TEST_F(QuorumTest, IsReachedWhenTheMissingOnesLeave) {
  Start(0.75, {A(), B(), C(), D()});
  Push(A(), 1);
  Push(B(), 1);
  EXPECT_THAT(Members(2, {A(), B(), C()}), IsEmpty()) << "two of three";
  EXPECT_THAT(Members(3, {A(), B()}), ElementsAre("apply 1:1*0.5 2:1*0.5 lr*1 average*1 -> 1.1",
                                                  HasSubstr("answer 1:1"), HasSubstr("answer 2:1")));
}

TEST_F(QuorumTest, ALeaversPushIsDroppedAndTheDeadlineIsTheNextOnes) {
  Start(1, {A(), B(), C()}, absl::Milliseconds(100));
  Push(A(), 1);
  After(absl::Milliseconds(50));
  Push(B(), 1);
  EXPECT_THAT(Members(2, {B(), C()}), ElementsAre("drop 1:1"));
  EXPECT_THAT(After(absl::Milliseconds(50)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(50)), ElementsAre(HasSubstr("apply 2:1*1"), HasSubstr("answer 2:1")));
}

TEST_F(QuorumTest, DoesNotWaitForeverForThoseItHasDiscarded) {
  Start(0.75, {A(), B(), C(), D()});
  for (const Sender& sender : {A(), B(), C(), D()}) Push(sender, 1, {Lineage(1), 0});  // the last one is late
  Push(A(), 2);
  // As after a restore, which these two had not heard of.
  for (const Sender& sender : {B(), C()}) {
    EXPECT_THAT(Push(sender, 2, {Lineage(0), 9}), ElementsAre(HasSubstr("drop"), HasSubstr("discarded")));
  }
  EXPECT_THAT(After(absl::Milliseconds(4799)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)),
              ElementsAre("apply 1:2*1 lr*1 average*0.25 -> 1.2", "answer 1:2 applied staleness 0"));
  Push(B(), 3);
  EXPECT_THAT(After(absl::Seconds(60)), IsEmpty()) << "the first one's push was applied: it will come";
}

TEST_F(QuorumTest, SilenceIsBrokenByTheNameOfOneWhosePushIsMissing) {
  Start(0.75, {A(), B(), C(), D()});
  for (const Sender& sender : {A(), B(), C()}) Push(sender, 1, {Lineage(1), 0});
  // The slowest is there; of the others the slowest is named.
  Push(D(), 1, {Lineage(1), 0});  // late
  Push(B(), 2);
  Push(B(), 3);  // same base, behind the other
  Pull(B(), 1, 2);
  EXPECT_THAT(After(absl::Milliseconds(900)), ElementsAre("waiting 2 for worker-1 at 1, 1 of 3 there, 3 missing"));
  Push(A(), 2);
  EXPECT_THAT(After(absl::Milliseconds(899)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)), ElementsAre("waiting 2 for worker-3 at 1, 2 of 3 there, 2 missing"));
}

TEST_F(QuorumTest, AWorkerWhosePushHasNotComeIsToldSoAndNobodyElseIsNamed) {
  Start(0.75, {A(), B(), C(), D()});
  Push(A(), 1);
  Pull(B(), 1, 1);
  EXPECT_THAT(After(absl::Milliseconds(900)), ElementsAre("waiting 2 for worker-2 at 0, its own push 1"));
}

TEST_F(QuorumTest, APushFromOlderWeightsThatComesToTheFrontIsLate) {
  Start(0.75, {A(), B()});
  Push(A(), 1);
  Push(B(), 1);  // 1.1
  Push(A(), 2, {Lineage(1), 1});
  Push(A(), 3, {Lineage(1), 0});
  // As after a restore, of which the worker has more answers.
  EXPECT_THAT(Hello(A(), 0, 2), ElementsAre("drop 1:2", "lost 1 (1, 2]", "drop 1:3", "answer 1:3 late staleness 0"));
  EXPECT_EQ(engine_->held_pushes(), 0u);
}

TEST_F(QuorumTest, EarlierStatesServeNobody) {
  Start(0.5, {A(), B()});
  Push(A(), 1);
  Push(B(), 1);
  EXPECT_FALSE(engine_->MayServe({{Lineage(1), 1}, Clock64(1)}, A(), Clock64(1))) << "its next push would be late";
  EXPECT_TRUE(engine_->MayServe({{Lineage(1), 2}, Clock64(1)}, A(), Clock64(1)));
}

TEST_F(QuorumTest, ALatePushThatCountsIsAnsweredAtOnceAndWeighsLessInTheNextStep) {
  StartCountingLate(0.5, {A(), B()});
  Push(A(), 1);
  Pull(B(), 1, 1);
  EXPECT_THAT(Push(B(), 1, {Lineage(1), 0}), ElementsAre("answer 2:1 applied staleness 1", "serve 2 pull 1"));
  EXPECT_EQ(engine_->held_pushes(), 1u);
  // A half of what it would weigh on time; the whole step is three quarters of one.
  EXPECT_THAT(Push(A(), 2), ElementsAre("apply 1:2*0.666667 2:1*0.333333~1 lr*0.75 average*0.5 -> 1.2",
                                        "answer 1:2 applied staleness 0"));
  EXPECT_EQ(engine_->held_pushes(), 0u);
  EXPECT_EQ(engine_->samples_applied(), 12u);
}

TEST_F(QuorumTest, LatePushesThatCountCompleteNoStep) {
  StartCountingLate(0.75, {A(), B(), C(), D()});
  for (const Sender& sender : {A(), B(), C(), D()}) Push(sender, 1, {Lineage(1), 0});  // the last one is late
  Push(A(), 2);
  Push(B(), 2);
  EXPECT_EQ(engine_->version().number, 1u);
  EXPECT_THAT(Push(D(), 2)[0], HasSubstr("apply 1:2*0.285714 2:2*0.285714 4:2*0.285714 4:1*0.142857~1 lr*0.875"));
}

TEST_F(QuorumTest, DoesNotWaitForeverForThoseWhoseLatePushesCount) {
  StartCountingLate(0.75, {A(), B(), C()});
  for (const Sender& sender : {A(), B(), C()}) Push(sender, 1, {Lineage(1), 0});
  Push(A(), 2);
  for (const Sender& sender : {B(), C()}) Push(sender, 2, {Lineage(1), 0});  // late
  EXPECT_THAT(After(absl::Milliseconds(4799)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)), ElementsAre(HasSubstr("apply 1:2*0.5 2:2*0.25~1 3:2*0.25~1 lr*0.666667"),
                                                        "answer 1:2 applied staleness 0"));
}

TEST_F(QuorumTest, LatePushesThatCountAreAppliedWhenAllHaveLeftAndNoSnapshotAnswersForThem) {
  StartCountingLate(0.5, {A(), B()});
  Push(A(), 1);
  Push(B(), 1, {Lineage(1), 0});
  const EngineState state = engine_->Snapshot();
  ASSERT_EQ(state.workers.size(), 2u);
  EXPECT_EQ(state.workers[1].clock, Clock64(0)) << "its push is in no weights yet: a restore reports it as lost";
  EXPECT_THAT(Members(2, {}), ElementsAre("apply 2:1*1~1 lr*0.5 average*0.5 -> 1.2"));
}

TEST_F(QuorumTest, LatePushesOfManyWhoHaveLeftCountAsOneStepOfAll) {
  StartCountingLate(0.5, {A(), B(), C(), D()});
  for (const Sender& sender : {A(), B(), C(), D()}) Push(sender, 1, {Lineage(1), 0});  // the last two are late
  EXPECT_EQ(engine_->held_pushes(), 2u);
  EXPECT_THAT(Members(2, {A(), B()}), IsEmpty());
  EXPECT_THAT(Members(3, {A()}), IsEmpty());
  EXPECT_THAT(Members(4, {}), ElementsAre("apply 3:1*0.5~1 4:1*0.5~1 lr*0.5 average*1 -> 1.2"));
}

TEST_F(QuorumTest, NoMoreLatePushesOfAWorkerCountThanItsWindowAllows) {
  StartCountingLate(1, {A(), B()});
  Push(A(), 1);
  Push(B(), 1);
  for (uint64_t sequence = 2; sequence <= 3; ++sequence) {
    EXPECT_THAT(Push(B(), sequence, {Lineage(1), 0}), ElementsAre(HasSubstr("applied staleness 1")));
  }
  EXPECT_THAT(Push(B(), 4, {Lineage(1), 0}), ElementsAre("drop 2:4", "answer 2:4 late staleness 0"));
  EXPECT_EQ(engine_->held_pushes(), 2u);
}

class WeightingTest : public EngineTest {
 protected:
  void Start(Mode mode, Weighting weighting, StalenessLr staleness_lr = StalenessLr::kNone) {
    EngineConfig config = Config(mode);
    config.weighting = weighting;
    config.staleness_lr = staleness_lr;
    config.quorum = 1;
    EngineTest::Start(config, {A(), B()});
  }
};

TEST_F(WeightingTest, UniformMeansCountEachPushAsOne) {
  for (const Mode mode : {Mode::kBsp, Mode::kSoftsync, Mode::kQuorum}) {
    Start(mode, Weighting::kUniform);
    Push(A(), 1, {Lineage(1), 0}, 1);
    EXPECT_THAT(Push(B(), 1, {Lineage(1), 0}, 3), testing::Contains("apply 1:1*0.5 2:1*0.5 lr*1 average*1 -> 1.1"));
    EXPECT_EQ(engine_->samples_applied(), 4u);
  }
}

// A batch has 4 samples.
TEST_F(WeightingTest, AStepCountsTheBatchesOfItsPushesAndASinglePushCountsOne) {
  const auto batches = [&](Mode mode, Weighting weighting) {
    Start(mode, weighting);
    Actions actions;
    engine_->Push({A(), Sequence(1), {Lineage(1), 0}, 4, now_}, actions);
    engine_->Push({B(), Sequence(1), {Lineage(1), 0}, 2, now_}, actions);
    for (const Action& action : actions) {
      if (const auto* apply = std::get_if<ApplyAction>(&action)) return apply->batches;
    }
    return 0.0;
  };
  for (const Mode mode : {Mode::kBsp, Mode::kSoftsync, Mode::kQuorum}) {
    EXPECT_EQ(batches(mode, Weighting::kSamples), 1.5);
    EXPECT_EQ(batches(mode, Weighting::kUniform), 2);
  }
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) EXPECT_EQ(batches(mode, Weighting::kSamples), 1);
}

TEST_F(WeightingTest, UniformPushesAreWholeSteps) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    Start(mode, Weighting::kUniform);
    EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}, 1), testing::Contains("apply 1:1*1 lr*1 average*0.5 -> 1.1"));
  }
}

TEST_F(WeightingTest, InverseDividesTheLearningRateOfAPushByItsStaleness) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    Start(mode, Weighting::kSamples, StalenessLr::kInverse);
    EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}), testing::Contains(HasSubstr("1:1*1 lr*1 ")));
    EXPECT_THAT(Push(A(), 2, {Lineage(1), 0}), testing::Contains(HasSubstr("1:2*1~1 lr*1 ")));
    // Half a batch, two versions old.
    EXPECT_THAT(Push(A(), 3, {Lineage(1), 0}, 2), testing::Contains(HasSubstr("1:3*1~2 lr*0.25 ")));
  }
}

}  // namespace
}  // namespace slackline::ps::engine_modes_test
