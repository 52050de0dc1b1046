// A shard that compensates stale gradients: which versions it keeps for that, and what it counts. A shard that predicts
// weights instead: who pulls what.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/host/shard_host.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::shard_compensation_test {
namespace {

constexpr uint64_t kElements = 2000;
constexpr uint64_t kChunkElements = 1024;

class ShardCompensationTest : public testing::Test {
 protected:
  struct Person {
    RecordingPeer peer;
    Caller caller;
    Sequence last;
    Version base;  // what it pulled last
  };

  // Weights 10; SGD with lr 1 and lambda 2.
  void Start(Mode mode, uint32_t references_max, bool shared_memory = false) {
    ShardConfig config = Config(mode, references_max, shared_memory);
    config.optimizer.delay_compensation = {.kind = DelayCompensationConfig::Kind::kConstant, .lambda = 2};
    Start(config);
  }
  static ShardConfig Config(Mode mode, uint32_t references_max, bool shared_memory) {
    ShardConfig config;
    config.extent = {.begin = 0, .end = kElements, .trained = kElements};
    config.optimizer.lr = 1;
    config.engine.mode = mode;
    config.engine.staleness_max = 9;
    config.chunk_elements = kChunkElements;
    config.references_max = references_max;
    config.shared_memory = shared_memory;
    return config;
  }
  void Start(const ShardConfig& config) {
    host_ = std::make_unique<ShardHost>(config, budget_, service_metrics_, time_);
    uint32_t number = 0;
    for (Person* person : {&alice_, &bob_, &carol_}) {
      ++number;
      person->caller = {&person->peer, {WorkerId(number), Incarnation(number)}, false, 1};
    }
    SetMembers({&alice_, &bob_, &carol_});
    for (Person* person : {&alice_, &bob_, &carol_}) {
      ASSERT_TRUE(host_->Hello(person->caller, {person->caller.sender, Clock64(), Sequence()}).ok());
    }
    wire::PushChunk seed = Chunk(0);
    seed.set_seed(true);
    host_->Push(alice_.caller, seed, AsPayload(Floats(kElements, 10)));
  }

  void SetMembers(const std::vector<Person*>& persons) {
    std::vector<MemberEntry> members;
    for (const Person* person : persons) members.push_back({person->caller.sender, "somebody"});
    ASSERT_TRUE(host_->SetMembers({Epoch(++epoch_), members}).ok());
  }

  static wire::PushChunk Chunk(uint64_t sequence) {
    wire::PushChunk chunk;
    chunk.set_sequence(sequence);
    chunk.set_elements(kElements);
    chunk.mutable_commit()->set_samples(1);
    chunk.mutable_commit()->mutable_base()->set_lineage(1);
    return chunk;
  }
  // The version is kept for the worker as long as it holds the result.
  std::shared_ptr<const PinnedView> Pull(Person& person) {
    host_->Pull(person.caller, {person.caller.sender, PullId(++pull_), person.last}, std::nullopt);
    if (person.peer.replies.empty()) {
      ADD_FAILURE() << "no reply";
      return nullptr;
    }
    const PullReply reply = std::exchange(person.peer.replies, {}).back();
    person.base = reply.version;
    return reply.weights;
  }
  // Its next push, computed from what it pulled last.
  void Push(Person& person, float value) {
    person.last = person.last.Next();
    wire::PushChunk chunk = Chunk(person.last.value());
    chunk.mutable_commit()->mutable_base()->set_number(person.base.number);
    host_->Push(person.caller, chunk, AsPayload(Floats(kElements, value)));
  }

  // The one value that all weights have.
  float Weight() {
    RecordingPeer reader;
    host_->Pull({&reader, {}, true, 1}, {{}, PullId(1), Clock64()}, std::nullopt);
    return OnlyValue(reader.replies.back().weights->view());
  }
  static float OnlyValue(const SliceView& view) {
    for (size_t i = 0; i < view.chunks(); ++i) EXPECT_THAT(view.chunk(i), testing::Each(view.chunk(0)[0]));
    return view.chunk(0)[0];
  }
  double Uncompensated() { return service_metrics_.pushes_uncompensated.value(); }

  Metrics metrics_;
  ServiceMetrics service_metrics_{metrics_};
  ManualTime time_;
  StagingBudget budget_{9 * kElements * sizeof(float)};
  Person alice_, bob_, carol_;
  uint64_t epoch_ = 0;
  uint64_t pull_ = 0;
  std::unique_ptr<ShardHost> host_;
};

TEST_F(ShardCompensationTest, CompensatesForWhatOthersHaveDoneSinceThePull) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    alice_.last = bob_.last = Sequence();
    Start(mode, 3);
    Pull(alice_);
    Pull(bob_);
    EXPECT_EQ(host_->load().reference_versions, 1u) << "the same version";
    Push(alice_, 4);
    EXPECT_EQ(Weight(), 6);
    // 1 + 2 x 1 x 1 x (6 - 10) = -7.
    Push(bob_, 1);
    EXPECT_EQ(Weight(), 13);
    EXPECT_EQ(Uncompensated(), 0);
  }
}

TEST_F(ShardCompensationTest, WorkersPullPredictedWeightsAndReadersTheWeights) {
  for (const bool shared_memory : {false, true}) {
    alice_.last = bob_.last = Sequence();
    ShardConfig config = Config(Mode::kAsync, 0, shared_memory);
    config.optimizer.momentum = 0.5;
    config.optimizer.predicts = true;
    Start(config);
    Pull(bob_);
    EXPECT_EQ(OnlyValue(Pull(alice_)->view()), 10);
    Push(alice_, 4);
    const std::shared_ptr<const PinnedView> early = Pull(alice_);
    EXPECT_EQ(OnlyValue(early->view()), 6) << "nothing has been late yet";
    // The buffer is 0.5 x 4 + 1 = 3. Of two pushes one was late by one step.
    Push(bob_, 1);
    EXPECT_EQ(Weight(), 3);
    const std::shared_ptr<const PinnedView> late = Pull(bob_);
    EXPECT_EQ(OnlyValue(late->view()), 3 - 0.5f * 3);
    EXPECT_EQ(host_->load().steps_ahead, 0.5);
    EXPECT_EQ(late->view().chunk_offset(0).has_value(), shared_memory);
    EXPECT_EQ(Weight(), 3);
    EXPECT_EQ(OnlyValue(early->view()), 6);
  }
}

TEST_F(ShardCompensationTest, APushFromAVersionThatIsGoneIsAppliedAsItIsAndCounted) {
  Start(Mode::kAsync, 2);
  Pull(alice_);  // 10
  Pull(bob_);
  Push(bob_, 1);
  Pull(bob_);
  Pull(carol_);  // 9
  Push(bob_, 1);
  EXPECT_EQ(host_->load().reference_versions, 2u);
  Pull(bob_);  // 8, which takes the place of 10
  EXPECT_EQ(host_->load().reference_versions, 2u);
  Push(alice_, 1);
  EXPECT_EQ(Weight(), 7);
  EXPECT_EQ(Uncompensated(), 1);
  // 1 + 2 x (7 - 9) = -3.
  Push(carol_, 1);
  EXPECT_EQ(Weight(), 10);
  // 1 + 2 x (10 - 8) = 5.
  Push(bob_, 1);
  EXPECT_EQ(Weight(), 5);
  EXPECT_EQ(Uncompensated(), 1);
}

TEST_F(ShardCompensationTest, VersionsOfWorkersThatLeftAreLetGo) {
  Start(Mode::kAsync, 9);
  for (Person* person : {&alice_, &bob_, &carol_}) {
    Pull(*person);
    Push(*person, 1);
  }
  EXPECT_EQ(host_->load().reference_versions, 3u);
  SetMembers({&bob_});
  EXPECT_EQ(host_->load().reference_versions, 1u);
  SetMembers({});
  EXPECT_EQ(host_->load().reference_versions, 0u);
}

TEST_F(ShardCompensationTest, SoftsyncCompensatesEachPushOfAGroupByItself) {
  Start(Mode::kSoftsync, 9);
  for (Person* person : {&alice_, &bob_, &carol_}) Pull(*person);
  for (Person* person : {&alice_, &bob_, &carol_}) Push(*person, 3);
  EXPECT_EQ(Weight(), 7);
  // From 10: answered at once, applied two pushes later, and alice has pulled and even left meanwhile.
  Push(alice_, 1);
  Pull(alice_);
  SetMembers({&bob_, &carol_});
  // 1 + 2 x (7 - 10) = -5, and bob's 1 is of now: the mean is -2.
  Pull(bob_);
  Push(bob_, 1);
  EXPECT_EQ(Weight(), 9);
  EXPECT_EQ(Uncompensated(), 0);
  EXPECT_EQ(host_->load().reference_versions, 2u);
}

TEST_F(ShardCompensationTest, TheSegmentHasRoomForReferences) {
  Start(Mode::kAsync, 5, /*shared_memory=*/true);
  ASSERT_NE(host_->segment(), nullptr);
  // The one that is written, two for readers, five for compensation; two chunks each, on pages of their own.
  EXPECT_EQ(host_->segment()->bytes(), 8u * 2 * 4096);
}

}  // namespace
}  // namespace slackline::ps::shard_compensation_test
