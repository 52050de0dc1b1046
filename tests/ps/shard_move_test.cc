// Shards that come to a server and leave it: what is refused, and that a refusal changes nothing.
// tests/exchange/moves_test.cc tests the pushes meanwhile.
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/replication/replica_log.h"
#include "ps/service/shard_table.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::shard_move_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kElements = 1000;  // of a shard

void AddShard(uint32_t shard, google::protobuf::RepeatedPtrField<wire::ShardSpec>& shards) {
  wire::ShardSpec& spec = *shards.Add();
  spec.set_shard(shard);
  spec.set_begin(shard * kElements);
  spec.set_end((shard + 1) * kElements);
}

wire::InstallShardsRequest Install(uint32_t server, uint64_t generation, const std::vector<uint32_t>& shards) {
  wire::InstallShardsRequest request;
  request.set_job(7);
  request.set_server(server);
  request.set_generation(generation);
  request.set_samples_per_epoch(100);
  request.set_trained_elements(4 * kElements);
  for (const uint32_t shard : shards) AddShard(shard, *request.mutable_shards());
  return request;
}

wire::InstallShardsRequest Move(uint32_t server, uint64_t generation, const std::vector<uint32_t>& shards) {
  wire::InstallShardsRequest request = Install(server, generation, shards);
  request.set_moves(true);
  request.set_restore_lineage(static_cast<uint32_t>(generation));
  return request;
}

wire::TakeShardsRequest Take(uint64_t move, const std::vector<uint32_t>& shards) {
  wire::TakeShardsRequest request;
  request.set_job(7);
  request.set_server(2);
  request.set_move(move);
  request.set_samples_per_epoch(100);
  request.set_trained_elements(4 * kElements);
  request.mutable_from()->set_server(1);
  request.mutable_from()->set_name("ps-1");
  request.mutable_from()->set_incarnation(1);
  for (const uint32_t shard : shards) AddShard(shard, *request.mutable_shards());
  return request;
}

class Sink : public ReplicaSink {
 public:
  void Wake() override {}
  void End(const absl::Status& status) override { ended = status; }

  std::optional<absl::Status> ended;
};

// A server, and the stream to whoever takes its shards.
struct Side {
  Side(const job::Job& job, const TimeSource& time, uint32_t server)
      : metrics(registry),
        table(job, Timeouts(), metrics, time,
              {.on_unpinned = nullptr,
               .on_seeded = nullptr,
               .on_stores = nullptr,
               .on_cut = nullptr,
               .on_backup = [this](const wire::ReplicationSource* source) { follows = source != nullptr; }}) {
    table.SetIdentity({JobId(7), ServerId(server), Incarnation(server)});
  }

  Metrics registry;
  ServiceMetrics metrics;
  bool follows = false;
  ShardTable table;
};

class ShardMoveTest : public testing::Test {
 protected:
  explicit ShardMoveTest(uint64_t staging_bytes_max = 0) : job_(PlainJob(job::Consistency::BSP)) {
    job_.mutable_limits()->set_staging_bytes_max(staging_bytes_max);
    from_ = std::make_unique<Side>(job_, time_, 1);
    to_ = std::make_unique<Side>(job_, time_, 2);
    EXPECT_TRUE(from_->table.Install(Install(1, 1, {0, 1})).ok());
    EXPECT_TRUE(to_->table.Install(Install(2, 1, {2, 3})).ok());
    wire::SetMembersRequest members;
    members.set_job(7);
    members.set_generation(1);
    members.set_epoch(1);
    members.add_members()->set_worker(1);
    members.mutable_members(0)->set_incarnation(11);
    EXPECT_TRUE(from_->table.SetMembers(members).ok());
    Seed();
  }
  ~ShardMoveTest() override { from_->table.Closed(worker_); }

  void Seed() {
    const auto say = [&](const wire::WorkerItem& item, const std::string& bytes) {
      wire::WorkerFrame frame;
      frame.set_job(7);
      frame.set_generation(1);
      *frame.add_items() = item;
      frame.mutable_items(0)->set_payload_bytes(static_cast<uint32_t>(bytes.size()));
      EXPECT_FALSE(from_->table.Receive(worker_, frame, AsPayload(bytes)).has_value());
    };
    wire::WorkerItem hello;
    hello.mutable_hello()->set_role(wire::ROLE_WORKER);
    hello.mutable_hello()->set_worker(1);
    hello.mutable_hello()->set_incarnation(11);
    say(hello, "");
    for (uint32_t shard = 0; shard < 2; ++shard) {
      wire::WorkerItem item;
      wire::PushChunk& chunk = *item.mutable_push();
      chunk.set_shard(shard);
      chunk.set_elements(kElements);
      chunk.set_seed(true);
      chunk.mutable_commit();
      say(item, std::string(kElements * sizeof(float), '\0'));
    }
    EXPECT_TRUE(from_->table.progress().report.seeded());
  }

  // The taker's stream, from its hello until it has all.
  void BringInStep() {
    const std::optional<wire::BackupHello> hello = to_->table.BeginFollowing();
    ASSERT_TRUE(hello);
    ASSERT_TRUE(from_->table.AttachBackup(sink_, *hello).ok());
    while (!from_->table.progress().report.backup().in_step()) {
      wire::ReplicaFrame frame;
      std::vector<rpc::Attachment> pieces;
      ASSERT_TRUE(from_->table.log()->NextFrame(sink_, frame, pieces)) << "all was sent, and it is not in step";
      std::string bytes;
      for (const rpc::Attachment& piece : pieces) {
        bytes.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
      }
      ASSERT_TRUE(to_->table.Follow(frame, AsPayload(bytes)).ok());
      ASSERT_TRUE(from_->table.log()->Handled(sink_, to_->table.feed()->handled(), to_->table.feed()->echo_us()).ok());
    }
  }

  job::Job job_;
  ManualTime time_;
  std::unique_ptr<Side> from_, to_;
  RecordingPeer worker_;
  Sink sink_;
};

TEST_F(ShardMoveTest, AShardIsGivenUpThereAndLivesHere) {
  ASSERT_TRUE(to_->table.Take(Take(1, {1})).ok());
  EXPECT_TRUE(to_->follows);
  BringInStep();
  ASSERT_TRUE(from_->table.Install(Move(1, 2, {0})).ok());
  EXPECT_TRUE(sink_.ended);
  EXPECT_EQ(from_->table.log(), nullptr);
  EXPECT_EQ(from_->table.TakeSnapshot(ShardId(1)), std::nullopt);
  EXPECT_TRUE(from_->table.progress().report.seeded()) << "the other one is as it was";
  ASSERT_TRUE(to_->table.Install(Move(2, 2, {1, 2, 3})).ok());
  EXPECT_FALSE(to_->follows);
  const std::optional<ShardSnapshot> moved = to_->table.TakeSnapshot(ShardId(1));
  ASSERT_TRUE(moved);
  EXPECT_GE(moved->engine.version.lineage, Lineage(2));
  // A scheduler that was started again says it again.
  EXPECT_TRUE(from_->table.Install(Move(1, 2, {0})).ok());
  EXPECT_TRUE(to_->table.Install(Move(2, 2, {1, 2, 3})).ok());
  // All of it may go.
  ASSERT_TRUE(from_->table.Install(Move(1, 3, {})).ok());
  EXPECT_FALSE(from_->table.progress().report.seeded());
  from_->table.Tick();
  // And a life of the server that has none gets none.
  Side again(job_, time_, 1);
  EXPECT_TRUE(again.table.Install(Move(1, 3, {})).ok());
}

TEST_F(ShardMoveTest, WhatWasNotTakenToItsEndCannotLiveHere) {
  for (const bool taken : {false, true}) {
    if (taken) {
      ASSERT_TRUE(to_->table.Take(Take(1, {1})).ok());
    }
    const absl::Status status = to_->table.Install(Move(2, 2, {1, 2, 3}));
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("shard 1 was not taken"));
  }
  BringInStep();
  wire::InstallShardsRequest other = Move(2, 2, {1, 2, 3});
  other.mutable_shards(0)->set_end(2 * kElements - 1);
  EXPECT_TRUE(absl::IsInvalidArgument(to_->table.Install(other)));
  // What is found wrong afterwards is worth nothing.
  wire::ReplicaFrame wrong;
  wrong.add_items()->mutable_step()->set_shard(9);
  EXPECT_FALSE(to_->table.Follow(wrong, rpc::Payload()).ok());
  EXPECT_TRUE(absl::IsDataLoss(to_->table.Install(Move(2, 2, {1, 2, 3}))));
  EXPECT_TRUE(to_->table.Install(Move(2, 2, {2, 3})).ok()) << "nothing has changed";
}

TEST_F(ShardMoveTest, WrongWishesAreRefused) {
  EXPECT_THAT(to_->table.Take(Take(1, {2})).message(), HasSubstr("shard 2 is there twice"));
  EXPECT_TRUE(absl::IsInvalidArgument(to_->table.Take(Take(0, {1}))));
  ASSERT_TRUE(to_->table.Take(Take(5, {1})).ok());
  EXPECT_TRUE(to_->table.Take(Take(5, {1})).ok()) << "the same again";
  EXPECT_TRUE(absl::IsFailedPrecondition(to_->table.Take(Take(4, {0}))));
  // A life that has come from nowhere has nothing to take shards with; and then it gets its own.
  Side fresh(job_, time_, 2);
  ASSERT_TRUE(fresh.table.Take(Take(1, {1})).ok());
  EXPECT_TRUE(fresh.table.Install(Install(2, 1, {2, 3})).ok());
  EXPECT_FALSE(fresh.follows);
  // The other end.
  wire::BackupHello hello = *to_->table.BeginFollowing();
  hello.clear_shards();
  EXPECT_TRUE(absl::IsInvalidArgument(from_->table.AttachBackup(sink_, hello)));
  hello.add_shards(3);
  EXPECT_TRUE(absl::IsInvalidArgument(from_->table.AttachBackup(sink_, hello)));
}

TEST_F(ShardMoveTest, AnotherMoveWaitsForTheEndOfTheOneBefore) {
  ASSERT_TRUE(to_->table.Take(Take(1, {1})).ok());
  BringInStep();
  wire::BackupHello hello = *to_->table.BeginFollowing();
  hello.set_move(2);
  Sink second;
  EXPECT_TRUE(absl::IsUnavailable(from_->table.AttachBackup(second, hello)));
  const uint64_t attachment = from_->table.progress().report.backup().attachment();
  from_->table.log()->Released(attachment);
  ASSERT_TRUE(from_->table.AttachBackup(second, hello).ok());
  EXPECT_GT(from_->table.progress().report.backup().attachment(), attachment)
      << "a late release must not be one of this";
  hello.set_move(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(from_->table.AttachBackup(sink_, hello)));
}

class NarrowShardMoveTest : public ShardMoveTest {
 protected:
  // Room for a step of two workers with two shards.
  NarrowShardMoveTest() : ShardMoveTest(2 * 2 * kElements * sizeof(float)) {}
};

TEST_F(NarrowShardMoveTest, ShardsForWhichThereIsNoRoomAreNotTaken) {
  const absl::Status status = to_->table.Take(Take(1, {1}));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("limits.staging_bytes_max"));
  EXPECT_FALSE(to_->follows);
}

}  // namespace
}  // namespace slackline::ps::shard_move_test
