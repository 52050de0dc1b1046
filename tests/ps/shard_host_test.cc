// A shard against callers that do right and wrong, without a network.
#include "ps/host/shard_host.h"

#include <limits>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::shard_host_test {
namespace {

constexpr uint64_t kElements = 3000;       // 12,000 bytes: two whole chunks and a shorter one
constexpr uint64_t kChunkElements = 1024;  // 4096 bytes
const Sender kAlice{WorkerId(1), Incarnation(11)};
const Sender kBob{WorkerId(2), Incarnation(12)};

class ShardHostTest : public testing::Test {
 protected:
  explicit ShardHostTest(Mode mode = Mode::kAsync, bool snapshots = false) {
    ShardConfig config;
    config.snapshots = snapshots;
    config.shard = ShardId(3);
    config.extent = {.begin = 0, .end = kElements, .trained = kElements};
    config.optimizer.lr = 1;
    config.engine.mode = mode;
    config.engine.staleness_max = 0;
    config.chunk_elements = kChunkElements;
    config.chunk_bytes_max = kChunkElements * sizeof(float);
    host_ = std::make_unique<ShardHost>(config, budget_, service_metrics_, time_);
    EXPECT_TRUE(host_->SetMembers({Epoch(1), {{kAlice, "alice"}, {kBob, "bob"}}}).ok());
    EXPECT_TRUE(host_->Hello(alice_, {kAlice, Clock64(), Sequence()}).ok());
    EXPECT_TRUE(host_->Hello(bob_, {kBob, Clock64(), Sequence()}).ok());
  }

  void Seed(float value = 10) { Send(alice_, Chunk(0, true), kElements, value, true); }

  static wire::PushChunk Chunk(uint64_t sequence, bool seed = false) {
    wire::PushChunk chunk;
    chunk.set_shard(3);
    chunk.set_sequence(sequence);
    chunk.set_seed(seed);
    return chunk;
  }

  static wire::PushCommit Trailer() {
    wire::PushCommit commit;
    commit.mutable_base()->set_lineage(1);
    commit.set_samples(1);
    return commit;
  }

  // Sends `count` elements of `value` in chunks; the last one commits when asked to.
  void Give(const Caller& caller, wire::PushChunk chunk, const std::string& bytes) {
    chunk.set_elements(bytes.size() / sizeof(float));
    host_->Push(caller, chunk, AsPayload(bytes));
  }
  void Send(const Caller& caller, wire::PushChunk chunk, uint64_t count, float value, bool commit) {
    for (uint64_t begin = 0; begin < count; begin += kChunkElements) {
      const uint64_t size = std::min(kChunkElements, count - begin);
      chunk.set_offset(begin);
      if (commit && begin + size == count) *chunk.mutable_commit() = Trailer();
      Give(caller, chunk, Floats(size, value));
    }
  }

  void Push(const Caller& caller, uint64_t sequence, float value = 1) {
    Send(caller, Chunk(sequence), kElements, value, true);
  }

  // The one value that all weights have; fails where there is a mixture.
  float Weight() {
    RecordingPeer reader;
    const Caller caller{&reader, {}, true, 1};
    host_->Pull(caller, {{}, PullId(1), Clock64()}, std::nullopt);
    if (reader.replies.empty()) {
      ADD_FAILURE() << "no reply to a pull";
      return 0;
    }
    const SliceView& view = reader.replies.back().weights->view();
    for (size_t index = 0; index < view.chunks(); ++index) {
      EXPECT_THAT(view.chunk(index), testing::Each(view.chunk(0)[0]));
    }
    return view.chunk(0)[0];
  }

  void ExpectRefused(RecordingPeer& peer, absl::StatusCode code, const std::string& words) {
    const wire::ServerItem item = peer.Take();
    ASSERT_TRUE(item.has_refused()) << item.DebugString();
    EXPECT_EQ(item.refused().code(), static_cast<uint32_t>(code)) << item.DebugString();
    EXPECT_THAT(item.refused().message(), testing::HasSubstr(words));
  }

  Metrics metrics_;
  ServiceMetrics service_metrics_{metrics_};
  ManualTime time_;
  StagingBudget budget_{4 * kElements * sizeof(float)};
  RecordingPeer alice_peer_, bob_peer_;
  Caller alice_{&alice_peer_, kAlice, false, 1};
  Caller bob_{&bob_peer_, kBob, false, 1};
  std::unique_ptr<ShardHost> host_;
};

TEST_F(ShardHostTest, PushIsAppliedOnceHoweverOftenItIsRepeated) {
  Seed();
  for (int repeat = 0; repeat < 3; ++repeat) {
    Push(alice_, 1);
    const wire::ServerItem item = alice_peer_.Take();
    ASSERT_TRUE(item.has_answer()) << item.DebugString();
    EXPECT_EQ(item.answer().sequence(), 1);
    EXPECT_EQ(item.answer().outcome(), wire::OUTCOME_APPLIED);
    EXPECT_EQ(item.answer().version().number(), 1);
  }
  EXPECT_EQ(Weight(), 9);
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ShardHostTest, CutIsTakenAtItsVersionWhileStepsGoOn) {
  Seed();
  std::vector<ShardCut> cuts;
  host_->CutAt(2, [&](ShardCut cut) { cuts.push_back(std::move(cut)); });
  Push(alice_, 1);
  EXPECT_TRUE(cuts.empty());
  EXPECT_TRUE(host_->awaits_cut());
  Push(alice_, 2);
  Push(alice_, 3);
  ASSERT_EQ(cuts.size(), 1u);
  EXPECT_FALSE(host_->awaits_cut());
  EXPECT_EQ(cuts[0].version.number, 2);
  EXPECT_EQ(cuts[0].numbers.weights.chunk(0)[0], 8);
  EXPECT_EQ(Weight(), 7);
  host_->CutAt(std::nullopt, [&](ShardCut cut) { cuts.push_back(std::move(cut)); });
  ASSERT_EQ(cuts.size(), 2u);
  EXPECT_EQ(cuts[1].version.number, 3);
}

TEST_F(ShardHostTest, HalfAPushNeverShows) {
  Seed();
  Send(alice_, Chunk(1), 2 * kChunkElements, 1, /*commit=*/false);
  EXPECT_EQ(Weight(), 10);
  EXPECT_EQ(budget_.used(), kElements * sizeof(float));  // reserved whole
  host_->Disconnected(alice_);
  EXPECT_EQ(budget_.used(), 0);
  EXPECT_EQ(Weight(), 10);
}

TEST_F(ShardHostTest, PushMayBeBegunAnew) {
  Seed();
  Send(alice_, Chunk(1), 2 * kChunkElements, 5, /*commit=*/false);
  Push(alice_, 1);
  EXPECT_TRUE(alice_peer_.Take().has_answer());
  EXPECT_EQ(Weight(), 9);
}

TEST_F(ShardHostTest, WrongLengthIsRefused) {
  Seed();
  alice_peer_.Take();
  Send(alice_, Chunk(1), kElements - 1, 1, true);
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "push has 2999 elements; the shard has 3000");
  Send(alice_, Chunk(1), kElements + 1, 1, true);
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "the shard has 3000");
  EXPECT_EQ(Weight(), 10);
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ShardHostTest, WrongChunksAreRefusedOnceAndChangeNothing) {
  Seed();
  alice_peer_.Take();
  wire::PushChunk chunk = Chunk(1);
  Give(alice_, chunk, "abc");
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "payload has 3 bytes for 0 elements");
  Give(alice_, chunk, Floats(kChunkElements + 1, 1));
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "at most 4096");
  chunk.set_offset(kChunkElements);
  Give(alice_, chunk, Floats(kChunkElements, 1));
  EXPECT_TRUE(alice_peer_.items.empty());  // the rest of what was refused
  chunk.set_sequence(2);
  Give(alice_, chunk, Floats(kChunkElements, 1));
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "not begun at element 0");
  EXPECT_EQ(Weight(), 10);
  Push(alice_, 1);
  EXPECT_EQ(Weight(), 9);
}

TEST_F(ShardHostTest, ChunksOutOfOrderAreRefused) {
  Seed();
  alice_peer_.Take();
  wire::PushChunk chunk = Chunk(1);
  Give(alice_, chunk, Floats(kChunkElements, 1));
  chunk.set_offset(2 * kChunkElements);
  Give(alice_, chunk, Floats(kChunkElements, 1));
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "begins at element 2048; expected is 1024");
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ShardHostTest, ValuesThatAreNotFiniteAreRefused) {
  Seed();
  alice_peer_.Take();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Push(alice_, 1, bad);
    ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "not finite");
  }
  EXPECT_EQ(Weight(), 10);
}

TEST_F(ShardHostTest, TrailersThatLieAreRefused) {
  Seed();
  alice_peer_.Take();
  auto send = [&](const wire::PushCommit& commit) {
    Send(alice_, Chunk(1), 2 * kChunkElements, 1, false);
    wire::PushChunk last = Chunk(1);
    last.set_offset(2 * kChunkElements);
    *last.mutable_commit() = commit;
    Give(alice_, last, Floats(kElements - 2 * kChunkElements, 1));
  };
  wire::PushCommit commit = Trailer();
  commit.set_samples(0);
  send(commit);
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "0 samples");
  commit = Trailer();
  commit.clear_base();
  send(commit);
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "base");
  commit = Trailer();
  commit.set_gradient_norm(std::numeric_limits<double>::quiet_NaN());
  send(commit);
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "gradient_norm");
  commit = Trailer();
  commit.mutable_base()->set_number(5);
  send(commit);
  ExpectRefused(alice_peer_, absl::StatusCode::kInvalidArgument, "version 1.5");
  EXPECT_EQ(Weight(), 10);
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ShardHostTest, GapInSequenceNamesTheExpectedNumber) {
  Seed();
  alice_peer_.Take();
  Send(alice_, Chunk(5), kElements, 1, true);
  ASSERT_EQ(alice_peer_.items.size(), 1);  // said at the first chunk, once
  EXPECT_EQ(alice_peer_.items[0].refused().expected_sequence(), 1);
  ExpectRefused(alice_peer_, absl::StatusCode::kFailedPrecondition, "expected is 1");
}

TEST_F(ShardHostTest, StagingIsBounded) {
  Seed();
  const auto all = budget_.Reserve(budget_.bytes_max() - 100);
  ASSERT_TRUE(all.ok());
  alice_peer_.Take();
  Push(alice_, 1);
  ExpectRefused(alice_peer_, absl::StatusCode::kResourceExhausted, "staging_bytes_max");
  EXPECT_EQ(Weight(), 10);
}

TEST_F(ShardHostTest, PushesBehindOneThatIsRefusedForNowAreRefusedForNowToo) {
  Seed();
  auto all = budget_.Reserve(budget_.bytes_max() - 100);
  ASSERT_TRUE(all.ok());
  alice_peer_.Take();
  Push(alice_, 1);
  ExpectRefused(alice_peer_, absl::StatusCode::kResourceExhausted, "staging_bytes_max");
  *all = StagingBudget::Reservation();
  // On their way already; the worker has left out nothing.
  for (const uint64_t sequence : {2, 3}) {
    Push(alice_, sequence);
    ExpectRefused(alice_peer_, absl::StatusCode::kUnavailable, "after push 1, which was refused; repeat both");
  }
  for (const uint64_t sequence : {1, 2, 3}) {
    Push(alice_, sequence);
    EXPECT_TRUE(alice_peer_.Take().has_answer()) << sequence;
  }
  EXPECT_EQ(Weight(), 7);
  Push(alice_, 5);
  ExpectRefused(alice_peer_, absl::StatusCode::kFailedPrecondition, "expected is 4");
}

TEST_F(ShardHostTest, UnknownWorkerAndReaderCannotPush) {
  Seed();
  const Caller reader{&bob_peer_, {}, true, 1};
  Push(reader, 1);
  ExpectRefused(bob_peer_, absl::StatusCode::kInvalidArgument, "reader");
  RecordingPeer stranger;
  const Caller caller{&stranger, {WorkerId(9), Incarnation(1)}, false, 1};
  EXPECT_EQ(host_->Hello(caller, {caller.sender, Clock64(), Sequence()}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Weight(), 10);
}

TEST_F(ShardHostTest, FirstInitialWeightsWin) {
  Seed(10);
  EXPECT_EQ(alice_peer_.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  Seed(20);
  EXPECT_EQ(alice_peer_.Take().answer().reason(), wire::DISCARD_SEEDED);
  EXPECT_EQ(Weight(), 10);
}

TEST_F(ShardHostTest, PullsWaitForInitialWeights) {
  host_->Pull(bob_, {kBob, PullId(7), Clock64()}, std::nullopt);
  EXPECT_TRUE(bob_peer_.replies.empty());
  time_.Advance(absl::Seconds(10));
  host_->Tick();
  EXPECT_THAT(bob_peer_.Take().waiting().message(), testing::HasSubstr("initial weights"));
  Push(alice_, 1);
  ExpectRefused(alice_peer_, absl::StatusCode::kAborted, "no initial weights");
  Seed();
  ASSERT_EQ(bob_peer_.replies.size(), 1);
  EXPECT_EQ(bob_peer_.replies[0].id, PullId(7));
}

TEST_F(ShardHostTest, CurrentVersionIsNotSentAgain) {
  Seed();
  host_->Pull(alice_, {kAlice, PullId(1), Clock64()}, Version{Lineage(1), 0});
  ASSERT_EQ(alice_peer_.replies.size(), 1);
  EXPECT_EQ(alice_peer_.replies[0].weights, nullptr);
  Push(alice_, 1);
  host_->Pull(alice_, {kAlice, PullId(2), Clock64(1)}, Version{Lineage(1), 0});
  EXPECT_NE(alice_peer_.replies.back().weights, nullptr);
}

TEST_F(ShardHostTest, PullIsOneVersionWhilePushesGoOn) {
  Seed();
  host_->Pull(bob_, {kBob, PullId(1), Clock64()}, std::nullopt);
  Push(alice_, 1);
  EXPECT_EQ(Weight(), 9);
  const SliceView& view = bob_peer_.replies[0].weights->view();
  for (size_t index = 0; index < view.chunks(); ++index) EXPECT_THAT(view.chunk(index), testing::Each(10.f));
}

TEST_F(ShardHostTest, SupersededVersionsAreBoundedAndPushesDoNotWait) {
  Seed();
  for (uint64_t push = 1; push <= 3; ++push) {
    host_->Pull(bob_, {kBob, PullId(push), Clock64(push - 1)}, std::nullopt);
    Push(bob_, push);
  }
  ASSERT_EQ(bob_peer_.replies.size(), 2);  // the third waits
  EXPECT_EQ(host_->engine().version().number, 3);
  bob_peer_.replies.erase(bob_peer_.replies.begin());
  host_->Retry();
  ASSERT_EQ(bob_peer_.replies.size(), 2);
  EXPECT_EQ(bob_peer_.replies.back().version.number, 3);
}

TEST_F(ShardHostTest, ReadersThatReadNothingLeaveOneVersionToWorkers) {
  Seed();
  RecordingPeer slow, other;
  host_->Pull({&slow, {}, true, 1}, {{}, PullId(1), Clock64()}, std::nullopt);
  Push(alice_, 1);
  host_->Pull({&other, {}, true, 1}, {{}, PullId(1), Clock64()}, std::nullopt);
  EXPECT_TRUE(other.replies.empty());
  for (uint64_t push = 2; push <= 4; ++push) {
    host_->Pull(alice_, {kAlice, PullId(push), Clock64(push - 1)}, std::nullopt);
    ASSERT_EQ(alice_peer_.replies.size(), 1);
    EXPECT_EQ(alice_peer_.replies[0].version.number, push - 1);
    host_->Retry();
    EXPECT_TRUE(other.replies.empty()) << "it may not join a worker in its version, either";
    alice_peer_.replies.clear();
    Push(alice_, push);
  }
  slow.replies.clear();
  host_->Retry();
  ASSERT_EQ(other.replies.size(), 1);
  EXPECT_EQ(other.replies[0].version.number, 4);
}

TEST_F(ShardHostTest, NewestPinnedVersionServesPullsThatItSatisfies) {
  Seed();
  RecordingPeer slow;
  Push(alice_, 1);
  host_->Pull({&slow, {}, true, 4}, {{}, PullId(1), Clock64()}, std::nullopt);
  Push(bob_, 1);
  host_->Pull(bob_, {kBob, PullId(7), Clock64(1)}, std::nullopt);
  for (const uint64_t push : {2, 3}) Push(bob_, push);
  ASSERT_EQ(slow.replies.size() + bob_peer_.replies.size(), 2);  // versions 1 and 2
  const std::vector<PullReply> read_slowly = std::exchange(bob_peer_.replies, {});
  EXPECT_EQ(host_->load().pinned_versions, 2);
  host_->Pull(alice_, {kAlice, PullId(1), Clock64(1)}, std::nullopt);
  ASSERT_EQ(alice_peer_.replies.size(), 1);
  EXPECT_EQ(alice_peer_.replies[0].version.number, 2);
  EXPECT_EQ(alice_peer_.replies[0].weights->view().chunk(0)[0], 8);
  host_->Pull(alice_, {kAlice, PullId(2), Clock64(1)}, Version{Lineage(1), 2});
  ASSERT_EQ(alice_peer_.replies.size(), 2);
  EXPECT_EQ(alice_peer_.replies[1].weights, nullptr);  // it has that one
  // Without his own last push, and back to before what she has: these wait.
  host_->Pull(bob_, {kBob, PullId(1), Clock64(3)}, std::nullopt);
  host_->Pull(alice_, {kAlice, PullId(3), Clock64(1)}, Version{Lineage(1), 3});
  EXPECT_TRUE(bob_peer_.replies.empty());
  EXPECT_EQ(host_->load().waiting_pulls, 2);
}

TEST_F(ShardHostTest, LateReadersOfTheOldestVersionAreEndedAndTold) {
  Seed();
  RecordingPeer oldest;
  host_->Pull({&oldest, {}, true, 1}, {{}, PullId(7), Clock64()}, std::nullopt);
  Push(alice_, 1);
  host_->Pull(bob_, {kBob, PullId(7), Clock64()}, std::nullopt);
  Push(alice_, 2);
  host_->Pull(alice_, {kAlice, PullId(1), Clock64(2)}, std::nullopt);
  host_->Tick();
  EXPECT_FALSE(oldest.ended);  // others have not waited long
  time_.Advance(absl::Seconds(2));
  host_->Tick();
  ASSERT_TRUE(oldest.ended);
  EXPECT_EQ(oldest.ended->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(oldest.ended->message()), testing::HasSubstr("holds version 1.0 of pull 7 since 2.0 s"));
  EXPECT_FALSE(bob_peer_.ended);
  oldest.replies.clear();
  host_->Retry();
  ASSERT_EQ(alice_peer_.replies.size(), 1);
  EXPECT_EQ(alice_peer_.replies[0].version.number, 2);
}

TEST_F(ShardHostTest, NewerPullReplacesOneThatWaits) {
  host_->Pull(bob_, {kBob, PullId(1), Clock64()}, std::nullopt);
  host_->Pull(bob_, {kBob, PullId(2), Clock64()}, std::nullopt);
  Seed();
  ASSERT_EQ(bob_peer_.replies.size(), 1);
  EXPECT_EQ(bob_peer_.replies[0].id, PullId(2));
}

class BspShardHostTest : public ShardHostTest {
 protected:
  BspShardHostTest() : ShardHostTest(Mode::kBsp) {}
};

TEST_F(BspShardHostTest, StepIsTheMeanOfAllWorkers) {
  Seed();
  alice_peer_.Take();
  Push(alice_, 1, 1);
  EXPECT_TRUE(alice_peer_.items.empty());
  EXPECT_EQ(budget_.used(), kElements * sizeof(float));  // held
  Push(bob_, 1, 3);
  EXPECT_EQ(alice_peer_.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  EXPECT_EQ(bob_peer_.Take().answer().version().number(), 1);
  EXPECT_EQ(Weight(), 8);
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(BspShardHostTest, WorkerThatLeavesIsNotAwaitedAndItsPushIsDropped) {
  Seed();
  Push(bob_, 1, 3);
  EXPECT_TRUE(host_->SetMembers({Epoch(2), {{kAlice, "alice"}}}).ok());
  EXPECT_EQ(budget_.used(), 0);
  Push(alice_, 1, 1);
  EXPECT_EQ(Weight(), 9);
}

TEST_F(BspShardHostTest, WindowIsEnforced) {
  Seed();
  Push(alice_, 1);
  Push(alice_, 2);
  ExpectRefused(alice_peer_, absl::StatusCode::kResourceExhausted, "the window allows 1");
}

TEST_F(BspShardHostTest, WhoIsAwaitedIsNamed) {
  Seed();
  Push(alice_, 1);
  host_->Pull(alice_, {kAlice, PullId(1), Clock64(1)}, std::nullopt);
  alice_peer_.Take();
  time_.Advance(absl::Seconds(10));
  host_->Tick();
  const wire::ServerItem item = alice_peer_.Take();
  EXPECT_EQ(item.waiting().pull(), 1);
  EXPECT_EQ(item.waiting().culprit(), 2);
  EXPECT_THAT(item.waiting().message(), testing::HasSubstr("bob"));
}

class ShardHostWithSnapshotsTest : public ShardHostTest {
 protected:
  ShardHostWithSnapshotsTest() : ShardHostTest(Mode::kAsync, /*snapshots=*/true) {}
};

TEST_F(ShardHostWithSnapshotsTest, NobodyGetsWeightsBeforeTheFirstSnapshotWasTried) {
  Seed();
  host_->Pull(bob_, {kBob, PullId(1), Clock64(), 1}, std::nullopt);
  EXPECT_TRUE(bob_peer_.replies.empty());
  time_.Advance(absl::Seconds(2));
  host_->Tick();
  EXPECT_THAT(bob_peer_.Take().waiting().message(), testing::HasSubstr("waits for its first snapshot to be on disk"));
  host_->FirstSnapshotTried();
  ASSERT_EQ(bob_peer_.replies.size(), 1u);
  Push(alice_, 1);
  EXPECT_EQ(Weight(), 9);
}

TEST_F(ShardHostWithSnapshotsTest, RestoredShardGoesOnAndDiscardsWhatItsOldLifeHadGivenOut) {
  Seed();
  host_->FirstSnapshotTried();
  Push(alice_, 1);
  const ShardSnapshot snapshot = host_->Snapshot();
  Push(alice_, 2);  // is lost

  ShardHost next(host_->config(), budget_, service_metrics_, time_);
  const auto read = [&](ShardState& state) -> absl::StatusOr<EngineState> {
    const absl::Status restored =
        state.Restore(snapshot.numbers.progress, [&](std::optional<size_t>, uint64_t begin, absl::Span<float> out) {
          std::vector<float> weights(kElements);
          snapshot.numbers.weights.CopyTo(absl::MakeSpan(weights));
          std::copy_n(weights.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
          return absl::OkStatus();
        });
    if (!restored.ok()) return restored;
    return snapshot.engine;
  };
  ASSERT_TRUE(next.Restore(read, Lineage(6)).ok());
  next.FirstSnapshotTried();  // it is on disk
  ASSERT_TRUE(next.SetMembers({Epoch(4), {{kAlice, "alice"}, {kBob, "bob"}}}).ok());
  const auto state = next.Hello(alice_, {kAlice, Clock64(), Sequence(2)});
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->lost(), 1u);
  EXPECT_EQ(state->lost_to(), 2u);
  EXPECT_EQ(state->last_answered(), 2u);
  // The Welcome may have been lost with its stream.
  const auto again = next.Hello(alice_, {kAlice, Clock64(), Sequence(2)});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->lost(), 1u);
  EXPECT_EQ(again->lost_to(), 2u);
  EXPECT_EQ(state->version().lineage(), 6u);
  alice_peer_.Take();
  wire::PushChunk chunk = Chunk(3);
  for (uint64_t begin = 0; begin < kElements; begin += kChunkElements) {
    const uint64_t size = std::min(kChunkElements, kElements - begin);
    chunk.set_offset(begin);
    chunk.set_elements(size);
    if (begin + size == kElements) *chunk.mutable_commit() = Trailer();  // of lineage 1
    next.Push(alice_, chunk, AsPayload(Floats(size, 1)));
  }
  EXPECT_EQ(alice_peer_.Take().answer().reason(), wire::DISCARD_LINEAGE);
  next.Pull(alice_, {kAlice, PullId(9), Clock64(3), 1}, std::nullopt);
  ASSERT_FALSE(alice_peer_.replies.empty());
  EXPECT_EQ(alice_peer_.replies.back().weights->view().chunk(0)[0], 9);
}

// Hears who joins, and what steps are taken.
class HearingJournal : public ShardJournal {
 public:
  bool Follows(ShardId /*shard*/) const override { return true; }
  void Stepped(ShardId /*shard*/, JournalStep step) override { steps.push_back(std::move(step)); }
  void Answered(ShardId /*shard*/, const Sender& /*sender*/, const Answer& /*answer*/, Tell tell) override { tell(); }
  void Joined(ShardId /*shard*/, const Sender& sender, Clock64 clock) override { joined.emplace_back(sender, clock); }
  void Left(ShardId /*shard*/, const Sender& sender) override { left.push_back(sender); }
  size_t Untold(ShardId /*shard*/, const Sender& /*sender*/) const override { return 0; }
  bool MayServe() const override { return true; }

  std::vector<std::pair<Sender, Clock64>> joined;
  std::vector<Sender> left;
  std::vector<JournalStep> steps;
};

// Whoever takes over would let them begin where the others are by then.
TEST_F(ShardHostTest, AJournalKnowsMembersThatHaveNotComeYet) {
  const Sender carol{WorkerId(3), Incarnation(13)};
  HearingJournal journal;
  host_->SetJournal(&journal);
  Seed();
  Push(alice_, 1);
  Push(bob_, 1);
  ASSERT_TRUE(host_->SetMembers({Epoch(2), {{kAlice, "alice"}, {kBob, "bob"}, {carol, "carol"}}}).ok());
  EXPECT_EQ(journal.joined, (std::vector<std::pair<Sender, Clock64>>{{carol, Clock64(1)}}));
  Push(alice_, 2);
  EXPECT_EQ(host_->MemberClocks(),
            (std::vector<std::pair<Sender, Clock64>>{{kAlice, Clock64(2)}, {kBob, Clock64(1)}, {carol, Clock64(1)}}));
  ASSERT_TRUE(host_->SetMembers({Epoch(3), {{kAlice, "alice"}, {carol, "carol"}}}).ok());
  EXPECT_EQ(journal.left, std::vector<Sender>{kBob});
  // One that does not come back is none that joins.
  ASSERT_TRUE(host_->SetMembers({Epoch(4), {{kAlice, "alice"}, {kBob, "bob"}, {carol, "carol"}}}).ok());
  EXPECT_EQ(journal.joined.size(), 1u);
  EXPECT_EQ(host_->MemberClocks().size(), 2u);
}

// It would refuse what is not finite, and be lost.
TEST_F(ShardHostTest, ABackupGetsThePushThatWasChecked) {
  HearingJournal journal;
  host_->SetJournal(&journal);
  Seed();
  std::vector<float> segment(kElements, 1);
  wire::PushChunk chunk = Chunk(1);
  chunk.clear_commit();
  chunk.set_segment_offset(0);
  const auto push = [&](uint64_t begin, uint64_t elements) {
    chunk.set_offset(begin);
    chunk.set_elements(elements);
    const absl::Span<const float> values = absl::MakeConstSpan(segment).subspan(begin, elements);
    host_->Push(alice_, chunk,
                rpc::Payload({reinterpret_cast<const std::byte*>(values.data()), 4 * elements}, nullptr));
  };
  push(0, kElements - 1);
  segment[0] = std::numeric_limits<float>::infinity();
  *chunk.mutable_commit() = Trailer();
  push(kElements - 1, 1);
  ASSERT_EQ(alice_peer_.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  ASSERT_EQ(journal.steps.size(), 1u);
  float first = 0;
  ByteReader(journal.steps[0].push->pieces()[0].bytes).Read(&first, sizeof(first));
  EXPECT_EQ(first, 1);
}

}  // namespace
}  // namespace slackline::ps::shard_host_test
