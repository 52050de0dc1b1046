// All shards of a server against frames, without a network.
#include "ps/service/shard_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::shard_table_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kElements = 10;

// Two shards and one worker.
class ShardTableTest : public testing::Test {
 protected:
  ShardTableTest() {
    table_.SetIdentity({JobId(7), ServerId(1), Incarnation(1)});
    wire::InstallShardsRequest install;
    install.set_job(7);
    install.set_server(1);
    install.set_generation(1);
    install.set_samples_per_epoch(100);
    for (uint32_t shard = 0; shard < 2; ++shard) {
      wire::ShardSpec& spec = *install.add_shards();
      spec.set_shard(shard);
      spec.set_begin(shard * kElements);
      spec.set_end((shard + 1) * kElements);
    }
    EXPECT_TRUE(table_.Install(install).ok());
    wire::SetMembersRequest members;
    members.set_job(7);
    members.set_generation(1);
    members.set_epoch(1);
    members.add_members()->set_worker(1);
    EXPECT_TRUE(table_.SetMembers(members).ok());
  }
  ~ShardTableTest() override { table_.Closed(peer_); }

  std::optional<absl::Status> Receive(const wire::WorkerItem& item) { return Receive(peer_, item); }
  std::optional<absl::Status> Receive(Peer& peer, const wire::WorkerItem& item, const std::string& bytes = "") {
    wire::WorkerFrame frame;
    frame.set_job(7);
    frame.set_generation(1);
    *frame.add_items() = item;
    frame.mutable_items(0)->set_payload_bytes(static_cast<uint32_t>(bytes.size()));
    return table_.Receive(peer, frame, AsPayload(bytes));
  }
  static wire::WorkerItem Hello(int shards) {
    wire::WorkerItem item;
    item.mutable_hello()->set_role(wire::ROLE_WORKER);
    item.mutable_hello()->set_worker(1);
    for (int i = 0; i < shards; ++i) item.mutable_hello()->add_shards()->set_shard(1);
    return item;
  }

  Metrics metrics_;
  ServiceMetrics service_metrics_{metrics_};
  ManualTime time_;
  RecordingPeer peer_;
  ShardTable table_{PlainJob(), Timeouts(), service_metrics_, time_, {}};
};

// A frame has room for millions of them.
TEST_F(ShardTableTest, ItemsThatNameMoreShardsThanThereAreAreRefused) {
  const std::optional<absl::Status> end = Receive(Hello(3));
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(end->message(), HasSubstr("hello names 3 shards; allowed are the 2 of this server, each once"));

  ASSERT_FALSE(Receive(Hello(2)).has_value());
  EXPECT_TRUE(peer_.Take().has_welcome());
  wire::WorkerItem pull, release;
  for (int i = 0; i < 3; ++i) pull.mutable_pull()->add_shards()->set_shard(1);
  EXPECT_FALSE(Receive(pull).has_value());
  EXPECT_THAT(peer_.Take().refused().message(), HasSubstr("pull names 3 shards"));
  for (int i = 0; i < 3; ++i) release.mutable_release()->add_shards(1);
  EXPECT_FALSE(Receive(release).has_value());
  EXPECT_THAT(peer_.Take().refused().message(), HasSubstr("release names 3 shards"));
  EXPECT_TRUE(peer_.releases.empty());
}

// Each shard knows by itself how far a worker is, so that one may agree and another refuse.
TEST_F(ShardTableTest, AHelloThatOneShardRefusesChangesNoOther) {
  wire::WorkerItem hello = Hello(0);
  wire::ShardClock& ahead = *hello.mutable_hello()->add_shards();
  ahead.set_shard(1);
  ahead.set_last_answered(100);
  ASSERT_FALSE(Receive(hello).has_value());
  wire::WorkerItem pull;
  pull.mutable_pull()->set_clock(1);
  pull.mutable_pull()->add_shards()->set_shard(0);
  ASSERT_FALSE(Receive(pull).has_value()) << "it waits for the worker's own push";

  RecordingPeer second;
  const std::optional<absl::Status> end = Receive(second, Hello(0));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(end->message(), HasSubstr("goes on from clock 0, here it is at 100"));
  table_.Closed(second);

  EXPECT_FALSE(peer_.ended.has_value()) << "the first stream goes on";
  wire::WorkerItem push;
  push.mutable_push()->set_elements(kElements);
  push.mutable_push()->set_seed(true);
  push.mutable_push()->mutable_commit();
  ASSERT_FALSE(Receive(peer_, push, Floats(kElements, 1)).has_value());
  push.mutable_push()->set_seed(false);
  push.mutable_push()->set_sequence(1);
  push.mutable_push()->mutable_commit()->mutable_base()->set_lineage(1);
  push.mutable_push()->mutable_commit()->set_samples(1);
  ASSERT_FALSE(Receive(peer_, push, Floats(kElements, 1)).has_value());
  EXPECT_EQ(peer_.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  ASSERT_EQ(peer_.replies.size(), 1u) << "the pull that waited was not forgotten";
  ASSERT_FALSE(Receive(pull).has_value());
  EXPECT_EQ(peer_.replies.size(), 2u);
}

TEST_F(ShardTableTest, PullsThatWouldOnlyTakeTheirPlacesAreRefused) {
  ASSERT_FALSE(Receive(Hello(0)).has_value());
  peer_.items.clear();
  wire::WorkerFrame frame;
  frame.set_job(7);
  frame.set_generation(1);
  for (int i = 0; i < 20; ++i) frame.add_items()->mutable_pull()->add_shards()->set_shard(1);
  EXPECT_FALSE(table_.Receive(peer_, frame, rpc::Payload()).has_value());
  EXPECT_EQ(peer_.items.size(), 12u) << "of 20, the window of two shards has room for 2, and 8 are let in";
  EXPECT_THAT(peer_.Take().refused().message(), HasSubstr("pulls of 20 shards in one frame; allowed are 8"));
}

// A step of bsp needs the pushes of all of them at once.
TEST(ShardTableWithMoreWorkersTest, ThanTheJobHasFindsRoomForTheirPushes) {
  constexpr uint32_t kWorkers = 5;  // of a job of two
  Metrics metrics;
  ServiceMetrics service_metrics{metrics};
  ManualTime time;
  RecordingPeer peers[kWorkers];
  ShardTable table(PlainJob(job::Consistency::BSP), Timeouts(), service_metrics, time, {});
  table.SetIdentity({JobId(7), ServerId(1), Incarnation(1)});
  wire::InstallShardsRequest install;
  install.set_job(7);
  install.set_server(1);
  install.set_generation(1);
  install.set_samples_per_epoch(100);
  install.add_shards()->set_end(kElements);
  ASSERT_TRUE(table.Install(install).ok());
  wire::SetMembersRequest members;
  members.set_job(7);
  members.set_generation(1);
  members.set_epoch(1);
  for (uint32_t i = 1; i <= kWorkers; ++i) members.add_members()->set_worker(i);
  ASSERT_TRUE(table.SetMembers(members).ok());
  const auto receive = [&](uint32_t worker, const wire::WorkerItem& item, uint64_t elements) {
    wire::WorkerFrame frame;
    frame.set_job(7);
    frame.set_generation(1);
    *frame.add_items() = item;
    frame.mutable_items(0)->set_payload_bytes(static_cast<uint32_t>(elements * sizeof(float)));
    EXPECT_FALSE(table.Receive(peers[worker - 1], frame, AsPayload(Floats(elements, 1))).has_value());
  };
  for (uint32_t i = 1; i <= kWorkers; ++i) {
    wire::WorkerItem item;
    item.mutable_hello()->set_role(wire::ROLE_WORKER);
    item.mutable_hello()->set_worker(i);
    receive(i, item, 0);
    item.mutable_push()->set_elements(kElements);
    item.mutable_push()->set_seed(true);
    item.mutable_push()->mutable_commit();
    if (i == 1) receive(i, item, kElements);
  }
  for (uint32_t i = 1; i <= kWorkers; ++i) {
    wire::WorkerItem item;
    item.mutable_push()->set_elements(kElements);
    item.mutable_push()->set_sequence(1);
    wire::PushCommit& commit = *item.mutable_push()->mutable_commit();
    commit.mutable_base()->set_lineage(1);
    commit.set_samples(1);
    receive(i, item, kElements);
  }
  for (uint32_t i = 0; i < kWorkers; ++i) {
    EXPECT_EQ(peers[i].Take().answer().outcome(), wire::OUTCOME_APPLIED) << i;
    table.Closed(peers[i]);
  }
}

}  // namespace
}  // namespace slackline::ps::shard_table_test
