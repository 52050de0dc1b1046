// A shard in the modes that make one step of several workers' pushes: what it keeps, says and counts.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/host/shard_host.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::shard_modes_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kElements = 2000;  // too long to be copied as it comes
constexpr uint64_t kBytes = kElements * sizeof(float);

class ShardModesTest : public testing::Test {
 protected:
  struct Person {
    RecordingPeer peer;
    Caller caller;
    Sequence last;
  };

  // Members alice, bob and carol; weights 10.
  void Start(const EngineConfig& engine) {
    ShardConfig config;
    config.shard = ShardId(3);
    config.extent = {.begin = 0, .end = kElements, .trained = kElements};
    config.optimizer.lr = 1;
    config.engine = engine;
    host_ = std::make_unique<ShardHost>(config, budget_, service_metrics_, time_);
    uint32_t number = 0;
    for (Person* person : {&alice_, &bob_, &carol_}) {
      ++number;
      person->caller = {&person->peer, {WorkerId(number), Incarnation(number)}, false, 1};
    }
    SetMembers({{alice_.caller.sender, "alice"}, {bob_.caller.sender, "bob"}, {carol_.caller.sender, "carol"}});
    for (Person* person : {&alice_, &bob_, &carol_}) {
      ASSERT_TRUE(host_->Hello(person->caller, {person->caller.sender, Clock64(), Sequence()}).ok());
    }
    wire::PushChunk seed = Chunk(0, 0);
    seed.set_seed(true);
    host_->Push(alice_.caller, seed, AsPayload(Floats(kElements, 10)));
    alice_.peer.Take();
  }
  static EngineConfig Async() {
    EngineConfig config;
    config.mode = Mode::kAsync;
    return config;
  }
  static EngineConfig Softsync() {
    EngineConfig config;
    config.mode = Mode::kSoftsync;
    return config;
  }
  static EngineConfig Quorum(double quorum, absl::Duration deadline = absl::ZeroDuration()) {
    EngineConfig config;
    config.mode = Mode::kQuorum;
    config.quorum = quorum;
    config.quorum_deadline = deadline;
    return config;
  }

  void SetMembers(const std::vector<MemberEntry>& members) {
    ASSERT_TRUE(host_->SetMembers({Epoch(++epoch_), members}).ok());
  }

  static wire::PushChunk Chunk(uint64_t sequence, uint64_t base) {
    wire::PushChunk chunk;
    chunk.set_shard(3);
    chunk.set_sequence(sequence);
    chunk.set_elements(kElements);
    chunk.mutable_commit()->mutable_base()->set_lineage(1);
    chunk.mutable_commit()->mutable_base()->set_number(base);
    chunk.mutable_commit()->set_samples(1);
    return chunk;
  }
  // The person's next push, computed from version `base`.
  void Push(Person& person, float value, uint64_t base = 0) {
    person.last = person.last.Next();
    host_->Push(person.caller, Chunk(person.last.value(), base), AsPayload(Floats(kElements, value)));
  }

  // Pushes from version 0, over `samples` samples. No rates: the job's.
  void PushAt(Person& person, float value, const std::vector<double>& rates, uint64_t samples = 1) {
    person.last = person.last.Next();
    wire::PushChunk chunk = Chunk(person.last.value(), 0);
    chunk.mutable_commit()->set_samples(samples);
    chunk.mutable_commit()->mutable_learning_rates()->Add(rates.begin(), rates.end());
    host_->Push(person.caller, chunk, AsPayload(Floats(kElements, value)));
  }

  float Weight() {
    RecordingPeer reader;
    host_->Pull({&reader, {}, true, 1}, {{}, PullId(1), Clock64()}, std::nullopt);
    return reader.replies.back().weights->view().chunk(0)[0];
  }
  double Late(const std::string& name) {
    return metrics_.counter("slackline_ps_pushes_late_total", "", {{"worker", name}}).value();
  }

  Metrics metrics_;
  ServiceMetrics service_metrics_{metrics_};
  ManualTime time_;
  StagingBudget budget_{4 * kBytes};
  Person alice_, bob_, carol_;
  uint64_t epoch_ = 0;
  std::unique_ptr<ShardHost> host_;
};

TEST_F(ShardModesTest, SoftsyncAnswersAtOnceAndKeepsTheBytesForTheStep) {
  Start(Softsync());
  Push(alice_, 1);
  EXPECT_EQ(alice_.peer.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  Push(alice_, 2);
  EXPECT_EQ(alice_.peer.Take().answer().version().number(), 0);
  EXPECT_EQ(Weight(), 10);
  EXPECT_EQ(budget_.used(), 2 * kBytes);
  Push(bob_, 6);
  EXPECT_EQ(bob_.peer.Take().answer().version().number(), 1);
  EXPECT_EQ(Weight(), 7);
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ShardModesTest, StepOfSeveralPushesTakesTheMeanOfTheirRatesBySamples) {
  EngineConfig bsp;
  bsp.mode = Mode::kBsp;
  for (const EngineConfig& engine : {Softsync(), bsp, Quorum(1)}) {
    for (Person* person : {&alice_, &bob_, &carol_}) person->last = Sequence();
    Start(engine);
    PushAt(alice_, 1, {0.5}, 2);
    PushAt(bob_, 1, {0.25}, 1);
    PushAt(carol_, 1, {0.125}, 1);
    EXPECT_EQ(Weight(), 10 - (0.5F * 2 + 0.25F + 0.125F) / 4);
  }
}

TEST_F(ShardModesTest, PushThatIsAStepHasItsOwnRate) {
  Start(Async());
  PushAt(alice_, 1, {0.5});
  EXPECT_EQ(Weight(), 9.5F);
  PushAt(alice_, 1, {0});
  EXPECT_EQ(Weight(), 9.5F);
  PushAt(bob_, 1, {2}, 3);
  EXPECT_EQ(Weight(), 3.5F) << "times the number of batches in it";
}

TEST_F(ShardModesTest, RateThatIsNoRateIsRefusedAndChangesNothing) {
  Start(Async());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& rates : std::vector<std::vector<double>>{{-0.1}, {nan}, {1e39}, {0.1, 0.1}}) {
    PushAt(alice_, 1, rates);
    const wire::Refused refused = alice_.peer.Take().refused();
    EXPECT_EQ(refused.code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(refused.message(), HasSubstr(rates.size() > 1 ? "0 or 1 are allowed" : "allowed is a finite float32"));
    alice_.last = Sequence();
  }
  EXPECT_EQ(Weight(), 10);
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ShardModesTest, PushWithoutRatesCountsInTheMeanWithTheJobs) {
  Start(Quorum(2.0 / 3));
  PushAt(alice_, 1, {});  // the job's lr is 1
  PushAt(bob_, 1, {0.5});
  EXPECT_EQ(Weight(), 10 - 0.75F);
}

TEST_F(ShardModesTest, SoftsyncAppliesWhatTheDeadWereToldIsApplied) {
  Start(Softsync());
  Push(carol_, 4);
  SetMembers({{alice_.caller.sender, "alice"}, {bob_.caller.sender, "bob"}});
  EXPECT_EQ(Weight(), 10);
  Push(alice_, 2);
  EXPECT_EQ(Weight(), 7);
}

TEST_F(ShardModesTest, SoftsyncKeepsNoBytesWhereTheWorkerWritesItsNextGradient) {
  Start(Softsync());
  std::vector<float> segment(kElements, 3);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    wire::PushChunk chunk = Chunk(sequence, 0);
    chunk.set_segment_offset(0);
    const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(segment.data()), kBytes);
    host_->Push(alice_.caller, chunk, rpc::Payload(bytes, nullptr));
    ASSERT_TRUE(alice_.peer.Take().has_answer());
    EXPECT_EQ(budget_.used(), (sequence % 3) * kBytes) << "its own memory is counted";
    segment.assign(kElements, 100);
    if (sequence == 2) segment.assign(kElements, 6);
  }
  EXPECT_FLOAT_EQ(Weight(), 10 - (3.F + 100 + 6) / 3);
}

TEST_F(ShardModesTest, APushThatWasAnsweredLongAgoIsRefusedAndStillApplied) {
  EngineConfig config = Softsync();
  config.window_max = 1;
  Start(config);
  Push(alice_, 1);
  Push(alice_, 2);
  host_->Push(alice_.caller, Chunk(1, 0), AsPayload(Floats(kElements, 1)));
  EXPECT_EQ(alice_.peer.Take().refused().code(), static_cast<uint32_t>(absl::StatusCode::kOutOfRange));
  Push(bob_, 3);
  EXPECT_EQ(Weight(), 8);
}

TEST_F(ShardModesTest, QuorumDiscardsTheLateAndCountsThemByName) {
  Start(Quorum(0.6));
  Push(alice_, 1);
  Push(bob_, 3);
  EXPECT_EQ(Weight(), 8);
  Push(carol_, 100);
  const wire::ServerItem item = carol_.peer.Take();
  EXPECT_EQ(item.answer().outcome(), wire::OUTCOME_DISCARDED);
  EXPECT_EQ(item.answer().reason(), wire::DISCARD_LATE);
  EXPECT_EQ(item.answer().version().number(), 1);
  EXPECT_EQ(Weight(), 8);
  EXPECT_EQ(budget_.used(), 0);
  EXPECT_EQ(Late("carol"), 1);
  EXPECT_EQ(Late("alice"), 0);
}

TEST_F(ShardModesTest, QuorumTakesItsStepAtTheDeadline) {
  Start(Quorum(1, absl::Milliseconds(100)));
  Push(alice_, 2);
  time_.Advance(absl::Milliseconds(99));
  host_->Tick();
  EXPECT_EQ(Weight(), 10);
  time_.Advance(absl::Milliseconds(1));
  host_->Tick();
  EXPECT_EQ(Weight(), 8);
  EXPECT_EQ(alice_.peer.Take().answer().outcome(), wire::OUTCOME_APPLIED);
}

TEST_F(ShardModesTest, WhoIsMissingForAQuorumIsNamed) {
  Start(Quorum(1, absl::Minutes(1)));
  host_->Pull(alice_.caller, {alice_.caller.sender, PullId(1), Clock64(1)}, std::nullopt);
  time_.Advance(absl::Seconds(2));
  host_->Tick();
  EXPECT_EQ(alice_.peer.Take().waiting().message(),
            "shard 3 waits for push 1 of this worker itself, which has not come, since 2.0 s");
  Push(alice_, 1);
  time_.Advance(absl::Seconds(2));
  host_->Tick();
  EXPECT_EQ(
      alice_.peer.Take().waiting().message(),
      "shard 3 has 1 of the 3 pushes of its next step and waits for one of 2 workers, such as worker 2 (bob), which "
      "is at clock 0, since 4.0 s; it goes on when enough of them push or are declared dead, or 60.0 s after the "
      "first push of the step");
  Push(bob_, 1);
  time_.Advance(absl::Seconds(2));
  host_->Tick();
  EXPECT_THAT(alice_.peer.Take().waiting().message(), HasSubstr("and waits for worker 3 (carol)"));
}

TEST_F(ShardModesTest, SomeWorkersAreCountedByNameAndTheOthersTogether) {
  for (size_t i = 0; i < ServiceMetrics::kNamedWorkersMax + 5; ++i)
    service_metrics_.Discarded(DiscardReason::kLate, std::to_string(i));
  service_metrics_.Discarded(DiscardReason::kLate, "0");
  EXPECT_EQ(Late("0"), 2);
  EXPECT_EQ(Late(std::to_string(ServiceMetrics::kNamedWorkersMax - 1)), 1);
  EXPECT_EQ(Late(ServiceMetrics::kOtherWorkers), 5);
}

TEST_F(ShardModesTest, WhoLetsAPullGoIsCountedWithTheTimeItWaited) {
  const auto awaited = [this](const char* name) {
    return metrics_.counter("slackline_ps_awaited_seconds_total", "", {{"worker", name}}).value();
  };
  Start(Quorum(1));
  Push(alice_, 1);
  host_->Pull(alice_.caller, {alice_.caller.sender, PullId(1), Clock64(1)}, std::nullopt);
  time_.Advance(absl::Seconds(2));
  Push(bob_, 1);
  host_->Pull(bob_.caller, {bob_.caller.sender, PullId(1), Clock64(1)}, std::nullopt);
  EXPECT_EQ(service_metrics_.pulls.value(), 0);
  time_.Advance(absl::Seconds(3));
  Push(carol_, 1);
  EXPECT_EQ(service_metrics_.pulls.value(), 2);
  EXPECT_EQ(awaited("carol"), 5 + 3);
  EXPECT_EQ(awaited("alice"), 0);
  EXPECT_EQ(awaited("bob"), 0);
  EXPECT_THAT(metrics_.Text(), HasSubstr("slackline_ps_pull_wait_seconds_sum 8"));
}

TEST_F(ShardModesTest, DiscardsAreCountedByReason) {
  const auto discarded = [this](const char* reason) {
    return metrics_.counter("slackline_ps_pushes_discarded_total", "", {{"reason", reason}}).value();
  };
  service_metrics_.Discarded(DiscardReason::kLineage, "alice");
  service_metrics_.Discarded(DiscardReason::kLate, "alice");
  service_metrics_.Discarded(DiscardReason::kLate, "bob");
  EXPECT_EQ(discarded("restored"), 1);
  EXPECT_EQ(discarded("late"), 2);
  EXPECT_EQ(discarded("outlier"), 0);
  EXPECT_EQ(Late("alice"), 1);
}

TEST_F(ShardModesTest, OutliersAreDiscardedWithAReasonAndCountedByName) {
  EngineConfig engine;
  engine.mode = Mode::kAsync;
  engine.outlier_factor = 3;
  Start(engine);
  const auto push = [this](Person& person, double norm) {
    person.last = person.last.Next();
    wire::PushChunk chunk = Chunk(person.last.value(), 0);
    chunk.mutable_commit()->set_gradient_norm(norm);
    host_->Push(person.caller, chunk, AsPayload(Floats(kElements, 0)));
    return person.peer.Take().answer();
  };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(push(alice_, 1).outcome(), wire::OUTCOME_APPLIED);
  const wire::PushAnswer answer = push(bob_, 100);
  EXPECT_EQ(answer.outcome(), wire::OUTCOME_DISCARDED);
  EXPECT_EQ(answer.reason(), wire::DISCARD_OUTLIER);
  EXPECT_EQ(metrics_.counter("slackline_ps_pushes_quarantined_total", "", {{"worker", "bob"}}).value(), 1);
  EXPECT_EQ(Late("bob"), 0);
}

TEST_F(ShardModesTest, AWorkerCannotHideAnOutlierBehindASmallNorm) {
  EngineConfig engine;
  engine.mode = Mode::kAsync;
  engine.outlier_factor = 3;
  Start(engine);
  for (int i = 0; i < 5; ++i) Push(alice_, 0.1F);
  alice_.peer.Take();
  Push(bob_, 1000);
  EXPECT_EQ(bob_.peer.Take().answer().reason(), wire::DISCARD_OUTLIER);
  // Nor by writing to shared memory once the shard has it.
  std::vector<float> segment(kElements, 0.1F);
  wire::PushChunk chunk = Chunk(2, 0);
  chunk.clear_commit();
  chunk.set_segment_offset(0);
  chunk.set_elements(kElements / 2);
  const auto part = [&](size_t begin) {
    const absl::Span<const float> values = absl::MakeConstSpan(segment).subspan(begin, kElements / 2);
    return rpc::Payload({reinterpret_cast<const std::byte*>(values.data()), kBytes / 2}, nullptr);
  };
  host_->Push(bob_.caller, chunk, part(0));
  EXPECT_EQ(budget_.used(), kBytes) << "its own memory is counted";
  segment.assign(kElements, 0.1F);
  segment[0] = 1000;
  chunk.set_offset(kElements / 2);
  *chunk.mutable_commit() = Chunk(2, 0).commit();
  host_->Push(bob_.caller, chunk, part(kElements / 2));
  EXPECT_EQ(bob_.peer.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  EXPECT_FLOAT_EQ(Weight(), 10 - 6 * 0.1F);
}

}  // namespace
}  // namespace slackline::ps::shard_modes_test
