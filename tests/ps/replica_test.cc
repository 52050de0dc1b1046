// Messages between a server and its backup, and what remains when one of them is gone.
#include "common/base/byte_segments.h"
#include "common/codec/encode.h"
#include "gmock/gmock.h"
#include "tests/ps/replica_fixture.h"

namespace slackline::ps::replica_test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(ReplicaTest, AnAnswerWaitsUntilTheBackupHasIt) {
  BringInStep();
  PushNow(1, 0, 1);
  EXPECT_THAT(Answers(1), IsEmpty());
  while (MoveFrame()) {
  }
  EXPECT_THAT(Answers(1), IsEmpty()) << "the backup has it, but the server has not heard so";
  Acknowledge();
  const std::vector<wire::PushAnswer> answers = Answers(1);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].outcome(), wire::OUTCOME_APPLIED);
}

TEST_F(ReplicaTest, NobodyGetsWeightsBeforeABackupHasThemOnce) {
  Hello(server_->table, 1);
  Seed();
  wire::WorkerItem pull;
  for (uint32_t shard = 0; shard < kShards; ++shard) pull.mutable_pull()->add_shards()->set_shard(shard);
  Say(server_->table, 1, pull);
  EXPECT_THAT(peer(1).replies, IsEmpty());
  ASSERT_TRUE(Attach().ok());
  MoveAll();
  EXPECT_THAT(peer(1).replies, SizeIs(kShards));
}

class ReplicaModes : public ReplicaTest, public testing::WithParamInterface<job::Consistency::Mode> {
 protected:
  ReplicaModes() : ReplicaTest(GetParam()) {}
};

// Random pushes of two workers, a backup that comes late, and a stream that is moved now and then.
TEST_P(ReplicaModes, WhoTakesOverHasTheSameBitsAndKnowsAllThatWasAnswered) {
  Hello(server_->table, 1);
  Hello(server_->table, 2);
  Seed();
  std::mt19937 random(5);
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> sent;             // by worker and shard
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, bool> answered;  // applied
  const auto hear = [&] {
    for (uint32_t worker = 1; worker <= 2; ++worker) {
      for (const wire::PushAnswer& answer : Answers(worker)) {
        if (answer.sequence() == 0) continue;
        answered[{worker, answer.shard(), answer.sequence()}] = answer.outcome() == wire::OUTCOME_APPLIED;
      }
    }
  };
  for (int round = 0; round < 400; ++round) {
    const uint32_t worker = 1 + random() % 2, shard = random() % kShards;
    uint64_t& last = sent[{worker, shard}];
    names_rates_ = random() % 2 == 0;
    hear();
    // The window: at most two are unanswered.
    if (last < 2 || answered.contains({worker, shard, last - 1})) PushNow(worker, shard, ++last);
    if (round == 50) {
      ASSERT_TRUE(Attach().ok());
    }
    if (round > 50 && random() % 3 == 0) MoveFrame();
    if (round > 50 && random() % 5 == 0) Acknowledge();
    time_.Advance(absl::Milliseconds(1));
    server_->table.Tick();
  }
  MoveAll();
  hear();
  ASSERT_TRUE(progress().in_step());
  EXPECT_GT(answered.size(), 100u);
  const std::vector<std::vector<float>> before = Numbers(server_->table);

  ASSERT_TRUE(Promote().ok());
  EXPECT_FALSE(backup_->follows);
  EXPECT_EQ(Numbers(backup_->table), before);
  SetMembers(backup_->table, 2, kBackup);
  generation_ = 2;
  for (uint32_t worker = 1; worker <= 2; ++worker) {
    server_->table.Closed(peer(worker));
    std::vector<uint64_t> heard(kShards);
    for (const auto& [push, applied] : answered) {
      const auto& [who, shard, sequence] = push;
      if (who == worker) heard[shard] = std::max(heard[shard], sequence);
    }
    Hello(backup_->table, worker, heard);
    const wire::Welcome welcome = peer(worker).items.front().welcome();
    for (const wire::ShardState& state : welcome.shards()) {
      EXPECT_EQ(state.lost(), 0u);
      EXPECT_EQ(state.version().lineage(), 2u);
      // What was answered is known, and nothing that was not sent.
      const uint64_t last = sent[{worker, state.shard()}];
      EXPECT_LE(state.last_answered(), last);
      for (uint64_t sequence = state.last_answered() + 1; sequence <= last; ++sequence) {
        EXPECT_FALSE(answered.contains({worker, state.shard(), sequence})) << sequence;
      }
      // The same push again gets the same answer, and changes nothing.
      const auto known = answered.find({worker, state.shard(), state.last_answered()});
      if (known == answered.end()) continue;
      peer(worker).items.clear();
      Push(backup_->table, worker, state.shard(), state.last_answered(), {Lineage(1), 0});
      const std::vector<wire::PushAnswer> again = Answers(worker);
      ASSERT_THAT(again, SizeIs(1));
      EXPECT_EQ(again[0].outcome() == wire::OUTCOME_APPLIED, known->second);
      break;
    }
  }
  EXPECT_EQ(Numbers(backup_->table), before);
}

INSTANTIATE_TEST_SUITE_P(All, ReplicaModes,
                         testing::Values(job::Consistency::ASYNC, job::Consistency::SSP, job::Consistency::BSP,
                                         job::Consistency::QUORUM),
                         [](const auto& info) { return job::Consistency::Mode_Name(info.param); });

// Who comes after that begins where the members are, not where somebody was who had left.
TEST_F(ReplicaTest, WhoTakesOverKnowsWhoHasLeft) {
  BringInStep();
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    for (uint32_t shard = 0; shard < kShards; ++shard) PushNow(1, shard, sequence);
    MoveAll();
  }
  SetMembers(server_->table, 1, kServer, {1});  // the other one had pushed nothing
  SetMembers(server_->table, 1, kServer, {1, 3});
  MoveAll();
  ASSERT_TRUE(Promote().ok());
  EXPECT_EQ(SetMembers(backup_->table, 2, kBackup, {1, 2, 3, 4}).clock_min_largest(), 3u);
  const ShardSnapshot taken = backup_->table.TakeSnapshot(ShardId(0)).value();
  EXPECT_THAT(taken.engine.gone, testing::ElementsAre(Sender{WorkerId(2), Incarnation(12)}));
}

// At whatever item the stream ends, a step is there with its answers or not at all.
TEST_F(ReplicaTest, AStepAndItsAnswerComeTogether) {
  BringInStep();
  PushNow(1, 0, 1);
  // The step, without the answer that follows it.
  wire::ReplicaFrame frame;
  std::vector<rpc::Attachment> pieces;
  ASSERT_TRUE(server_->table.log()->NextFrame(*wire_, frame, pieces));
  ASSERT_TRUE(frame.items().rbegin()->has_answer());
  frame.mutable_items()->RemoveLast();
  ASSERT_TRUE(frame.items().rbegin()->has_step());
  wire::ReplicaFrame header;
  const auto payload = rpc::Parse(rpc::Build(frame, absl::MakeSpan(pieces)), header);
  ASSERT_TRUE(backup_->table.Follow(header, *payload).ok());

  ASSERT_TRUE(Promote().ok());
  SetMembers(backup_->table, 2, kBackup);
  generation_ = 2;
  server_->table.Closed(peer(1));
  peer(1).items.clear();
  Hello(backup_->table, 1);
  Push(backup_->table, 1, 0, 1, {Lineage(1), 0});
  const std::vector<wire::PushAnswer> again = Answers(1);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].outcome(), wire::OUTCOME_APPLIED) << "it is in the weights";
}

// Frames of the longest chunks: a gradient as long as one may be, and a chunk of an array.
TEST(ReplicaLogFrames, AreNoLongerThanAMessageAndHoldUpNeitherStepsNorArrays) {
  constexpr uint64_t kChunk = 4 << 20, kMessage = 8 << 20, kSize = kChunk / sizeof(float);
  const codec::Codec top_k = {.encoding = codec::Encoding::kTopK, .fraction = 0.5};
  const std::vector<float> ones(kSize, 1);
  std::string pairs(codec::EncodedBytesMax(top_k, kSize), '\0');
  ASSERT_EQ(codec::Encode(top_k, ones, {reinterpret_cast<std::byte*>(pairs.data()), pairs.size()}), kChunk);
  ShardState state({.begin = 0, .end = kSize, .trained = kSize}, {.kind = OptimizerKind::kSgd}, {}, kSize);
  ASSERT_TRUE(state.Seed(ByteSegments(AsBytes(ones))).ok());
  Metrics registry;
  ServiceMetrics metrics(registry);
  ManualTime time;
  ReplicaLog::Options options;
  for (const uint32_t shard : {0, 1}) {
    options.shards.push_back({JobId(7), ShardId(shard), {.begin = 0, .end = kSize, .trained = kSize}, state.arrays()});
  }
  options.take = [&](ShardId) { return ShardSnapshot{state.Snapshot(), {}, time.Now()}; };
  ReplicaLog log(std::move(options), metrics, time);
  Wire sink;
  ASSERT_TRUE(log.Attach(sink, Incarnation(2)).ok());

  int arrays = 0, bases = 0, steps = 0;
  for (uint64_t version = 1; version <= 4; ++version) {
    auto push = std::make_shared<StagedPush>();
    ASSERT_TRUE(push->Add({.elements = kSize, .codec = top_k, .last = true}, {kSize, kChunk}, AsPayload(pairs)).ok());
    log.Stepped(ShardId(0),
                {.version = {Lineage(1), version}, .arguments = {}, .push = push, .mean = nullptr, .answers = {}});
    for (int i = 0; i < 3; ++i) {  // so that both would pile up if one had to wait for the end of the other
      wire::ReplicaFrame frame;
      std::vector<rpc::Attachment> pieces;
      if (!log.NextFrame(sink, frame, pieces)) break;
      for (const wire::ReplicaItem& item : frame.items()) {
        arrays += item.has_array();
        bases += item.has_base();
        steps += item.has_step();
      }
      EXPECT_LE(rpc::Build(frame, absl::MakeSpan(pieces)).Length(), kMessage);
    }
  }
  EXPECT_EQ(arrays, 2);
  EXPECT_EQ(bases, 2);
  EXPECT_EQ(steps, 4) << "of shard 0, while shard 1 is copied";
}

TEST_F(ReplicaTest, WithoutItsBackupAServerAnswersNobodyUntilItIsReleased) {
  BringInStep();
  PushNow(1, 0, 1);
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  PushNow(1, 1, 1);
  PushNow(2, 0, 1);
  EXPECT_THAT(Answers(1), IsEmpty());
  EXPECT_TRUE(progress().lost());
  EXPECT_TRUE(progress().in_step()) << "it may take over";

  // It may not come back either: what it has is worth something.
  EXPECT_TRUE(absl::IsUnavailable(Attach()));
  server_->table.log()->Released(progress().attachment() - 1);
  EXPECT_THAT(Answers(1), IsEmpty()) << "released from an earlier one";
  server_->table.log()->Released(progress().attachment());
  EXPECT_THAT(Answers(1), SizeIs(2));
  EXPECT_THAT(Answers(2), SizeIs(1));
  PushNow(2, 1, 1);
  EXPECT_THAT(Answers(2), SizeIs(1)) << "alone, it answers at once";

  ASSERT_TRUE(Attach().ok());
  MoveAll();
  EXPECT_TRUE(progress().in_step());
  ASSERT_TRUE(Promote().ok());
  EXPECT_EQ(Numbers(backup_->table), Numbers(server_->table));
}

TEST_F(ReplicaTest, ABackupThatWasNeverInStepHoldsUpNobody) {
  Hello(server_->table, 1);
  Seed();
  ASSERT_TRUE(Attach().ok());
  MoveFrame();
  Answers(1);
  PushNow(1, 0, 1);
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  EXPECT_THAT(Answers(1), SizeIs(1));
  EXPECT_EQ(Promote().code(), absl::StatusCode::kDataLoss);
  // Nothing has changed by that.
  ASSERT_TRUE(Attach().ok());
  MoveAll();
  EXPECT_TRUE(progress().in_step());
}

// A server that was stopped while its backup took over must not show old weights.
TEST_F(ReplicaTest, PullsAreServedOnlyWhileTheBackupIsHeard) {
  BringInStep();
  const auto pull = [&](uint32_t worker, uint64_t id) {
    wire::WorkerItem item;
    item.mutable_pull()->set_id(id);
    item.mutable_pull()->add_shards()->set_shard(0);
    Say(server_->table, worker, item);
    return std::exchange(peer(worker).replies, {}).size();
  };
  EXPECT_EQ(pull(1, 1), 1u);
  time_.Advance(Timeouts().lease() + absl::Milliseconds(1));
  EXPECT_EQ(pull(1, 2), 0u);
  // An echo of long ago says nothing.
  Acknowledge();
  server_->table.Tick();
  EXPECT_THAT(peer(1).replies, IsEmpty());
  server_->table.log()->Tick();
  MoveAll();
  EXPECT_THAT(peer(1).replies, SizeIs(1));
}

TEST_F(ReplicaTest, WhoTakesOverServesPullsWhenTheOtherOneCannotAnyMore) {
  BringInStep();
  ASSERT_TRUE(Promote().ok());
  SetMembers(backup_->table, 2, kBackup);
  generation_ = 2;
  server_->table.Closed(peer(1));
  Hello(backup_->table, 1);
  wire::WorkerItem item;
  item.mutable_pull()->add_shards()->set_shard(0);
  peer(1).replies.clear();
  Say(backup_->table, 1, item);
  EXPECT_THAT(peer(1).replies, IsEmpty());
  time_.Advance(Timeouts().lease() + absl::Milliseconds(1));
  backup_->table.Tick();
  EXPECT_THAT(peer(1).replies, SizeIs(1));
}

TEST_F(ReplicaTest, ABackupTakesNoFramesOfWorkersAndNoMembers) {
  BringInStep();
  wire::WorkerFrame frame;
  frame.set_job(7);
  frame.set_generation(1);
  frame.add_items()->mutable_hello()->set_role(wire::ROLE_READER);
  RecordingPeer reader;
  const auto end = backup_->table.Receive(reader, frame, rpc::Payload());
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(end->message(), HasSubstr("is the backup of another"));
  EXPECT_TRUE(absl::IsUnavailable(backup_->table.SetMembers(wire::SetMembersRequest()).status()));
}

TEST_F(ReplicaTest, ASilentBackupIsLost) {
  BringInStep();
  time_.Advance(Timeouts().worker_dead() + absl::Milliseconds(1));
  server_->table.log()->Tick();
  EXPECT_TRUE(progress().lost());
  ASSERT_TRUE(wire_->ended.has_value());
  EXPECT_THAT(wire_->ended->message(), HasSubstr("silent"));
}

// Whoever waits for it must not take the server for dead.
TEST_F(ReplicaTest, WhoWaitsForAnAnswerIsToldWhy) {
  BringInStep();
  PushNow(1, 0, 1);
  const auto notices = [&] {
    std::string text;
    for (const wire::ServerItem& item : std::exchange(peer(1).items, {})) text += item.waiting().message();
    return text;
  };
  time_.Advance(Timeouts().notice());
  server_->table.log()->Tick();
  EXPECT_THAT(notices(), HasSubstr("shard 0 has an answer and waits for the backup to have what was before it"));
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  server_->table.log()->Tick();
  EXPECT_EQ(notices(), "") << "it was just told";
  time_.Advance(Timeouts().notice());
  server_->table.log()->Tick();
  EXPECT_THAT(notices(), HasSubstr("waits for the scheduler to say that the backup"));
}

// A worker that repeats itself while it waits costs nothing.
TEST_F(ReplicaTest, WhatIsSaidAgainWaitsOnce) {
  BringInStep();
  PushNow(1, 0, 1);
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  for (int i = 0; i < 50; ++i) Push(server_->table, 1, 0, 1, {Lineage(1), 0});
  Push(server_->table, 1, 0, 2, {Lineage(1), 0});
  wire::WorkerItem third;
  third.mutable_push()->set_sequence(3);
  third.mutable_push()->set_elements(1000);
  Say(server_->table, 1, third, Floats(1000, 1));
  EXPECT_THAT(peer(1).Take().refused().message(),
              HasSubstr("push 3: pushes from 1 on are unanswered, the window allows 2"));
  server_->table.log()->Released(progress().attachment());
  EXPECT_THAT(Answers(1), SizeIs(2));
}

TEST_F(ReplicaTest, ACopyThatHasOtherWeightsBeginsAnew) {
  BringInStep();
  PushNow(1, 0, 1);
  MoveAll();
  time_.Advance(absl::Seconds(11));
  Acknowledge();  // it is not silent
  server_->table.log()->Tick();
  wire::ReplicaFrame frame;
  std::vector<rpc::Attachment> pieces;
  ASSERT_TRUE(server_->table.log()->NextFrame(*wire_, frame, pieces));
  ASSERT_TRUE(frame.items(0).has_check());
  EXPECT_TRUE(backup_->table.Follow(frame, rpc::Payload()).ok());
  frame.mutable_items(0)->mutable_check()->set_checksum(frame.items(0).check().checksum() + 1);
  EXPECT_THAT(backup_->table.Follow(frame, rpc::Payload()).message(),
              HasSubstr("shard 0 is at version 1.1 with checksum"));
}

TEST_F(ReplicaTest, StrangersAndLiarsAreTurnedAway) {
  BringInStep();
  Wire other;
  wire::BackupHello hello;
  hello.set_job(8);
  EXPECT_TRUE(absl::IsFailedPrecondition(server_->table.AttachBackup(other, hello)));
  hello.set_job(7);
  hello.set_server(1);
  hello.set_server_incarnation(99);
  EXPECT_THAT(server_->table.AttachBackup(other, hello).message(), HasSubstr("incarnation 99"));
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  server_->table.log()->Released(progress().attachment());
  hello.set_server_incarnation(kServer);
  hello.set_backup_incarnation(kBackup - 1);
  EXPECT_THAT(server_->table.AttachBackup(other, hello).message(), HasSubstr("that of incarnation 2 was here already"));
  ASSERT_TRUE(Attach().ok());
  ReplicaLog& log = *server_->table.log();
  EXPECT_TRUE(absl::IsInvalidArgument(log.Handled(*wire_, 1'000'000, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(log.Handled(*wire_, 1, UINT64_MAX / 2)));
}

TEST_F(ReplicaTest, WhatMakesNoSenseEndsTheStream) {
  BringInStep();
  const auto follow = [&](const wire::ReplicaItem& item) {
    wire::ReplicaFrame frame;
    *frame.add_items() = item;
    return backup_->table.Follow(frame, rpc::Payload());
  };
  wire::ReplicaItem item;
  EXPECT_THAT(follow(item).message(), HasSubstr("without a body"));
  item.mutable_step()->set_shard(9);
  EXPECT_THAT(follow(item).message(), HasSubstr("shard 9 is not here"));
  item.mutable_step()->set_shard(0);
  EXPECT_THAT(follow(item).message(), HasSubstr("without all of its gradient"));
  item.mutable_array()->set_shard(0);
  EXPECT_THAT(follow(item).message(), HasSubstr("has its base already"));
  item.mutable_bytes()->set_elements(kElements);
  EXPECT_THAT(follow(item).message(), HasSubstr("payload has 0 bytes"));
  item.set_payload_bytes(4);
  EXPECT_THAT(follow(item).message(), HasSubstr("claims 4 bytes"));
}

}  // namespace
}  // namespace slackline::ps::replica_test
