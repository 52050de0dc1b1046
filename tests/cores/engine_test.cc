#include "tests/cores/engine_fixture.h"

namespace slackline::ps::engine_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(EngineTest, AsyncAppliesEachPushAsItComesWithItsStaleness) {
  Start(Mode::kAsync, {A(), B()});
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}),
              ElementsAre("apply 1:1*1 lr*1 average*0.5 -> 1.1", "answer 1:1 applied staleness 0"));
  EXPECT_THAT(Push(B(), 1, {Lineage(1), 0}),
              ElementsAre("apply 2:1*1~1 lr*1 average*0.5 -> 1.2", "answer 2:1 applied staleness 1"));
  EXPECT_THAT(Pull(A(), 1, 1), ElementsAre("serve 1 pull 1"));
}

TEST_F(EngineTest, AsyncScalesTheLearningRateByTheSamplesOfThePush) {
  Start(Mode::kAsync, {A()});
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}, 1),
              ElementsAre("apply 1:1*1 lr*0.25 average*1 -> 1.1", "answer 1:1 applied staleness 0"));
}

TEST_F(EngineTest, APullWaitsForTheWorkersOwnPush) {
  Start(Mode::kAsync, {A()});
  EXPECT_THAT(Pull(A(), 1, 1), IsEmpty());
  EXPECT_THAT(Push(A(), 1),
              ElementsAre("apply 1:1*1 lr*1 average*1 -> 1.1", "answer 1:1 applied staleness 0", "serve 1 pull 1"));
}

TEST_F(EngineTest, SspLetsAWorkerRunAheadByTheBoundAndNoFurther) {
  Start(Mode::kSsp, {A(), B()}, /*bound=*/1);
  Push(A(), 1);
  EXPECT_THAT(Pull(A(), 1, 1), ElementsAre("serve 1 pull 1"));
  Push(A(), 2);
  EXPECT_THAT(Pull(A(), 2, 2), IsEmpty());
  EXPECT_EQ(engine_->waiting_pulls(), 1u);
  EXPECT_THAT(Push(B(), 1), ElementsAre(HasSubstr("apply 2:1"), HasSubstr("answer 2:1"), "serve 1 pull 2"));
}

TEST_F(EngineTest, EarlierStateServesAPullThatItSatisfied) {
  Start(Mode::kSsp, {A(), B()}, /*bound=*/1);
  Push(A(), 1);  // 1.1
  Push(B(), 1);  // 1.2
  Push(A(), 2);  // 1.3
  const auto may_serve = [&](uint64_t version, uint64_t clock_min, const Sender& sender, uint64_t clock) {
    return engine_->MayServe({{Lineage(1), version}, Clock64(clock_min)}, sender, Clock64(clock));
  };
  EXPECT_TRUE(may_serve(3, 1, A(), 2));
  EXPECT_FALSE(may_serve(2, 1, A(), 2)) << "without its own push 2";
  EXPECT_FALSE(may_serve(3, 0, A(), 2)) << "beyond the bound";
  EXPECT_TRUE(may_serve(2, 1, B(), 1));
  EXPECT_FALSE(may_serve(1, 0, B(), 1)) << "without its own push 1";
  EXPECT_FALSE(may_serve(3, 1, B(), 0)) << "when that was, is not known";
  EXPECT_FALSE(may_serve(3, 1, C(), 1)) << "not a member";
  EXPECT_FALSE(engine_->MayServe({{Lineage(2), 3}, Clock64(1)}, A(), Clock64(2))) << "another lineage";
}

TEST_F(EngineTest, BspAppliesOneStepForTheWeightedMeanWhenAllAreThere) {
  Start(Mode::kBsp, {A(), B()});
  EXPECT_THAT(Push(B(), 1, {Lineage(1), 0}, 1), IsEmpty());
  EXPECT_THAT(Pull(B(), 1, 1), IsEmpty());
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}, 3),
              ElementsAre("apply 1:1*0.75 2:1*0.25 lr*1 average*1 -> 1.1", "answer 1:1 applied staleness 0",
                          "answer 2:1 applied staleness 0", "serve 2 pull 1"));
}

TEST_F(EngineTest, AWorkerThatDiesFreesItsBspStepAndItsHeldPushIsDropped) {
  Start(Mode::kBsp, {A(), B(), C()});
  Push(A(), 1);
  Push(C(), 1);
  EXPECT_THAT(Members(2, {A(), B()}), ElementsAre("drop 3:1"));
  EXPECT_THAT(Members(3, {A()}), ElementsAre(HasSubstr("apply 1:1*1"), HasSubstr("answer 1:1")));
}

TEST_F(EngineTest, AWorkerThatDiesFreesWhoWaitsForIt) {
  Start(Mode::kSsp, {A(), B()}, /*bound=*/0);
  Push(A(), 1);
  EXPECT_THAT(Pull(A(), 1, 1), IsEmpty());
  EXPECT_THAT(Members(2, {A()}), ElementsAre("serve 1 pull 1"));
}

TEST_F(EngineTest, RepeatedPushGetsTheStoredAnswerAndChangesNothing) {
  Start(Mode::kAsync, {A()});
  Push(A(), 1);
  EXPECT_EQ(engine_->Admit(A(), Sequence(1)), Engine::Admission::kIgnore);
  EXPECT_THAT(Push(A(), 1), ElementsAre("again 1:1 applied staleness 0"));
  EXPECT_EQ(engine_->version().number, 1u);
}

TEST_F(EngineTest, AnAnswerOlderThanTheWindowIsOutOfRange) {
  Start(Mode::kAsync, {A()});
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Push(A(), sequence);
  EXPECT_THAT(Push(A(), 1), ElementsAre(HasSubstr("OUT_OF_RANGE")));
  EXPECT_THAT(Push(A(), 2), ElementsAre("again 1:2 applied staleness 0"));
}

TEST_F(EngineTest, APushBeyondTheNextIsRefusedWithTheNumberExpected) {
  Start(Mode::kAsync, {A()});
  EXPECT_EQ(engine_->Admit(A(), Sequence(2)), Engine::Admission::kRefuse);
  EXPECT_THAT(Push(A(), 2),
              ElementsAre("refuse 1: FAILED_PRECONDITION: push has sequence 2, expected is 1 expected 1"));
}

TEST_F(EngineTest, StrangersAndOldIncarnationsAreRefused) {
  Start(Mode::kAsync, {A()});
  EXPECT_THAT(Push(B(), 1), ElementsAre(HasSubstr("worker 2 incarnation 12 is not a member")));
  const Sender old{WorkerId(1), Incarnation(10)};
  EXPECT_THAT(Push(old, 1), ElementsAre(HasSubstr("says incarnation 10, the member is incarnation 11")));
  EXPECT_THAT(Pull(old, 1, 0), ElementsAre(HasSubstr("FAILED_PRECONDITION")));
  EXPECT_EQ(engine_->version().number, 0u);
}

TEST_F(EngineTest, AVersionFromTheFutureIsInvalid) {
  Start(Mode::kAsync, {A()});
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 5}),
              ElementsAre("drop 1:1", HasSubstr("computed from version 1.5, the shard is at 1.0")));
  EXPECT_THAT(Push(A(), 1, {Lineage(2), 0}), ElementsAre("drop 1:1", HasSubstr("INVALID_ARGUMENT")));
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}, 0), ElementsAre("drop 1:1", HasSubstr("0 samples")));
  EXPECT_EQ(engine_->clock(WorkerId(1)), Clock64(0));
}

TEST_F(EngineTest, ANewMemberBeginsAtTheSlowestClock) {
  Start(Mode::kSsp, {A()});
  Push(A(), 1);
  Push(A(), 2);
  Members(2, {A(), B()});
  EXPECT_EQ(engine_->clock(WorkerId(2)), Clock64(2));
}

TEST_F(EngineTest, AnEmptySetKeepsItsPlaceInTime) {
  Start(Mode::kSsp, {A()});
  Push(A(), 1);
  Members(2, {});
  Members(3, {B()});
  EXPECT_EQ(engine_->clock(WorkerId(2)), Clock64(1));
}

TEST_F(EngineTest, AnOlderSetIsRefused) {
  Start(Mode::kSsp, {A()});
  Members(5, {A(), B()});
  Actions actions;
  EXPECT_EQ(engine_->SetMembers({Epoch(4), {}}, actions).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine_->live_workers(), 2u);
}

TEST_F(EngineTest, AChangeOfTheSetLeavesTheOthersAlone) {
  Start(Mode::kBsp, {A(), B(), C()});
  Push(A(), 1);
  Push(C(), 1);
  const Sender again{B().worker, Incarnation(B().incarnation.value() + 100)};
  Actions actions;
  const MemberSet change = {Epoch(2), {{again, "b"}, {D(), "d"}}, Epoch(1), {C().worker, WorkerId(99)}};
  EXPECT_THAT(engine_->PutOutBy(change), ElementsAre(B(), C()));
  ASSERT_TRUE(engine_->SetMembers(change, actions).ok());
  EXPECT_THAT(Lines(actions), ElementsAre("drop 3:1"));
  for (const Sender& member : {A(), again, D()}) EXPECT_TRUE(engine_->IsMember(member));
  EXPECT_EQ(engine_->live_workers(), 3u);
  EXPECT_EQ(engine_->held_pushes(), 1u);
  // The scheduler repeats a change whose answer was lost. A change of another set is refused.
  actions.clear();
  ASSERT_TRUE(engine_->SetMembers(change, actions).ok());
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(engine_->SetMembers({Epoch(3), {{C(), "c"}}, Epoch(1), {}}, actions).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine_->live_workers(), 3u);
}

TEST_F(EngineTest, AJoinerIsAdvancedToItsFirstClockWithoutLoss) {
  Start(Mode::kSsp, {A()});
  EXPECT_THAT(Hello(A(), 7, 7), IsEmpty());
  EXPECT_EQ(engine_->clock(WorkerId(1)), Clock64(7));
}

TEST_F(EngineTest, ARestoredShardAdvancesClocksReportsTheLossAndDiscardsTheOldLineage) {
  Start(Mode::kSsp, {A(), B()});
  Push(A(), 1);
  Push(B(), 1);
  const EngineState manifest = engine_->Snapshot();
  Push(A(), 2);
  Push(B(), 2);
  const Version before = engine_->version();

  engine_.emplace(Config(Mode::kSsp), manifest);
  EXPECT_EQ(engine_->version(), (Version{Lineage(2), 2}));
  Members(9, {A(), B()});
  EXPECT_THAT(Hello(A(), 0, 2), ElementsAre("lost 1 (1, 2]"));
  EXPECT_THAT(Push(A(), 3, before), ElementsAre("drop 1:3", "answer 1:3 discarded staleness 0"));
  EXPECT_EQ(engine_->version().number, 2u);
  // The other had no answer to its push 2 yet: the manifest is before it, so it is taken now, and discarded.
  EXPECT_THAT(Hello(B(), 0, 1), IsEmpty());
  EXPECT_THAT(Push(B(), 2, before), ElementsAre("drop 2:2", "answer 2:2 discarded staleness 0"));
}

// A scheduler that went on from an old state may put a worker into the set again that was out of it. Which of its
// pushes were applied is not known any more.
TEST_F(EngineTest, AWorkerThatWasOutOfTheSetMustJoinAgain) {
  Start(Mode::kAsync, {A(), B()});
  Push(B(), 1);
  Members(5, {A()});
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Push(A(), sequence);
  Members(6, {A(), B()});
  Actions actions;
  const absl::Status status = engine_->Hello({B(), Clock64(0), Sequence(1)}, actions);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("was out of the set of members"));
  EXPECT_FALSE(engine_->IsMember(B()));
  EXPECT_THAT(Hello(A(), 0, 1), IsEmpty()) << "the answers to 2 and 3 are stored";
}

// It says that pushes were answered of which the shard knows nothing, though they are in its weights.
TEST_F(EngineTest, AWorkerThatIsAheadAndWasOutOfTheSetLosesNothing) {
  Start(Mode::kAsync, {A(), B()});
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) Push(B(), sequence);
  Push(A(), 1);
  Members(5, {A()});
  const EngineState manifest = engine_->Snapshot();
  EXPECT_THAT(manifest.gone, ElementsAre(B()));
  for (const bool restored : {false, true}) {
    if (restored) engine_.emplace(Config(Mode::kAsync), manifest);
    Members(6, {A(), B()});
    Actions actions;
    EXPECT_EQ(engine_->Hello({B(), Clock64(0), Sequence(5)}, actions).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(actions.empty());
    EXPECT_EQ(engine_->live_workers(), 1u) << "nobody waits for it";
  }
  const Sender again{B().worker, Incarnation(B().incarnation.value() + 100)};
  Members(7, {A(), again});
  EXPECT_TRUE(engine_->IsMember(again));
}

TEST_F(EngineTest, ARestoredShardKeepsStoredAnswers) {
  Start(Mode::kAsync, {A()});
  Push(A(), 1);
  engine_.emplace(Config(Mode::kAsync), engine_->Snapshot());
  Members(2, {A()});
  EXPECT_THAT(Push(A(), 1, {Lineage(1), 0}), ElementsAre("again 1:1 applied staleness 0"));
}

TEST_F(EngineTest, SilenceAtAGateIsBrokenByTheNameOfTheCulprit) {
  Start(Mode::kBsp, {A(), B()});
  Push(A(), 1);
  Pull(A(), 1, 1);
  EXPECT_THAT(After(absl::Milliseconds(800)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(100)), ElementsAre("waiting 1 for worker-2 at 0"));
  EXPECT_THAT(After(absl::Milliseconds(100)), IsEmpty());
}

TEST_F(EngineTest, WhoWaitsForItsOwnPushIsItsOwnCulprit) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp, Mode::kBsp, Mode::kSoftsync}) {
    Start(mode, {A(), B()});
    Push(B(), 1);
    Pull(B(), 1, 2);
    // The slowest is worker 1, and could do nothing about it.
    if (mode == Mode::kBsp) Push(A(), 1);
    const uint64_t clock = engine_->clock(B().worker)->value();
    EXPECT_THAT(After(absl::Seconds(1)),
                ElementsAre(absl::StrCat("waiting 2 for worker-2 at ", clock, ", its own push ", clock + 1)))
        << static_cast<int>(mode);
  }
}

TEST_F(EngineTest, WhoHasPushedWaitsForTheSlowestWhosePushIsMissing) {
  Start(Mode::kBsp, {A(), B(), C()});
  for (const Sender& sender : {A(), B(), C()}) Push(sender, 1);
  Push(A(), 2);
  Push(B(), 2);
  Pull(B(), 1, 2);
  // The push after it has not come either, but this one's step is awaited first.
  Pull(A(), 1, 3);
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre("waiting 1 for worker-3 at 1", "waiting 2 for worker-3 at 1"));
}

TEST_F(EngineTest, SeveralWaitingPullsOfAWorkerGoWhenTheirTurnComes) {
  Start(Mode::kSsp, {A(), B()}, /*bound=*/1);
  const auto pull = [&](uint64_t id, uint64_t clock) {
    Actions actions;
    engine_->Pull({A(), PullId(id), Clock64(clock), /*waiting_max=*/4}, now_, actions);
    return Lines(actions);
  };
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Push(A(), sequence);
  EXPECT_THAT(pull(3, 3), IsEmpty());
  EXPECT_THAT(pull(2, 2), IsEmpty());
  EXPECT_THAT(pull(4, 4), IsEmpty());
  EXPECT_THAT(Push(B(), 1), ElementsAre(HasSubstr("apply"), HasSubstr("answer"), "serve 1 pull 2"));
  EXPECT_THAT(Push(A(), 4), ElementsAre(HasSubstr("apply"), HasSubstr("answer")));
  EXPECT_THAT(Push(B(), 2), ElementsAre(HasSubstr("apply"), HasSubstr("answer"), "serve 1 pull 3"));
  EXPECT_THAT(Members(2, {A()}), ElementsAre("serve 1 pull 4"));
}

// Half a second; where each event walks over all workers it is the time limit of the test.
TEST_F(EngineTest, ManyWorkersGoOnInEveryMode) {
  constexpr uint64_t kWorkers = 20000, kRounds = 3;
  std::vector<Sender> members;
  for (uint32_t i = 1; i <= kWorkers; ++i) members.push_back({WorkerId(i), Incarnation(i)});
  for (const Mode mode : {Mode::kAsync, Mode::kSsp, Mode::kBsp, Mode::kSoftsync, Mode::kQuorum}) {
    EngineConfig config = Config(mode, /*bound=*/0);
    config.quorum = 1;
    Start(config, members);
    uint64_t served = 0;
    const auto count = [&](const std::vector<std::string>& lines) {
      for (const std::string& line : lines) served += line.starts_with("serve ");
    };
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (const Sender& member : members) {
        count(Pull(member, round, round));
        count(Push(member, round));
      }
      // ssp waits for the slowest of the round, as bsp does.
      EXPECT_EQ(served, round * kWorkers) << static_cast<int>(mode);
    }
    EXPECT_EQ(engine_->clock_min(), Clock64(kRounds));
  }
}

TEST_F(EngineTest, ANewStreamForgetsOldPulls) {
  Start(Mode::kSsp, {A(), B()}, 0);
  Push(A(), 1);
  Pull(A(), 1, 1);
  engine_->Disconnected(A());
  EXPECT_EQ(engine_->waiting_pulls(), 0u);
  Hello(A(), 0, 1);
  EXPECT_THAT(Push(B(), 1), ElementsAre(HasSubstr("apply"), HasSubstr("answer")));
}

}  // namespace
}  // namespace slackline::ps::engine_test
