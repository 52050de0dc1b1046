// Checks of the job by a server before it takes shards, and the shards that it finds on disk.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/time/clock.h"
#include "common/job/optimizer_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/service/shard_builder.h"
#include "ps/service/shard_table.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::install_test {
namespace {

constexpr uint64_t kElements = 1000;
constexpr uint64_t kBytes = kElements * sizeof(float);

// Two shards.
wire::InstallShardsRequest Request() {
  wire::InstallShardsRequest request;
  request.set_job(7);
  request.set_server(1);
  request.set_generation(1);
  request.set_samples_per_epoch(100);
  request.set_trained_elements(2 * kElements);
  for (uint32_t shard = 0; shard < 2; ++shard) {
    wire::ShardSpec& spec = *request.add_shards();
    spec.set_shard(shard);
    spec.set_begin(shard * kElements);
    spec.set_end((shard + 1) * kElements);
  }
  return request;
}

// On a server with room for `pushes` of its whole part of the model.
absl::Status Install(job::Job job, uint64_t pushes) {
  job.mutable_limits()->set_staging_bytes_max(pushes * 2 * kBytes);
  Metrics metrics;
  ServiceMetrics service_metrics(metrics);
  ManualTime time;
  ShardTable table(job, Timeouts{absl::Milliseconds(100)}, service_metrics, time, {});
  table.SetIdentity({JobId(7), ServerId(1)});
  return table.Install(Request());
}

// With two pushes of two workers in flight, a server with room for two could hold both of the first worker, and wait
// for the second one's for good.
TEST(Install, RefusesStagingThatCouldNotHoldAStep) {
  struct Case {
    job::Consistency::Mode mode;
    uint32_t window;
    uint64_t needed;
    bool counts_late = false;
  };
  for (const Case& c :
       {Case{job::Consistency::ASYNC, 2, 1}, Case{job::Consistency::SSP, 2, 1}, Case{job::Consistency::BSP, 1, 3},
        Case{job::Consistency::BSP, 2, 5}, Case{job::Consistency::QUORUM, 2, 5},
        Case{job::Consistency::QUORUM, 2, 11, true}, Case{job::Consistency::SOFTSYNC, 2, 3}}) {
    job::Job job = PlainJob(c.mode);
    if (c.counts_late) job.mutable_consistency()->set_late(job::Consistency::COUNT);
    job.mutable_cluster()->set_workers(3);
    job.mutable_wire()->set_window(c.window);
    EXPECT_TRUE(Install(job, c.needed).ok()) << job.DebugString();
    if (c.needed == 1) continue;
    const absl::Status status = Install(job, c.needed - 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr(absl::StrCat("need at least ", c.needed * 2 * kBytes)));
  }
}

TEST(Install, RefusesMoreWeightsThanTheMachineHasMemoryFor) {
  Metrics metrics;
  ServiceMetrics service_metrics(metrics);
  ManualTime time;
  ShardTable table(PlainJob(), Timeouts{absl::Milliseconds(100)}, service_metrics, time, {});
  table.SetIdentity({JobId(7), ServerId(1)});
  for (const uint64_t end : {uint64_t{1} << 44, UINT64_MAX}) {
    wire::InstallShardsRequest request = Request();
    request.mutable_shards(1)->set_end(end);
    const absl::Status status = table.Install(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.message(), testing::HasSubstr("shard 1 has"));
  }
  EXPECT_TRUE(table.Install(Request()).ok()) << "nothing is left of those";
}

// Under a script's optimizer, with one group.
wire::InstallShardsRequest WithOptimizer() {
  wire::InstallShardsRequest request = Request();
  request.mutable_optimizer()->set_kind(job::Optimizer::ADAMW);
  request.mutable_optimizer()->set_lr(0.25);
  request.mutable_optimizer()->add_groups()->set_weight_decay(0.5);
  request.add_groups()->set_end(100);
  return request;
}

TEST(Install, ShardsHaveTheOptimizerThatTheSchedulerNames) {
  Metrics metrics;
  ServiceMetrics service_metrics(metrics);
  ManualTime time;
  const job::Job job = PlainJob();
  StagingBudget budget(uint64_t{1} << 20);
  const ShardBuilder builder(job, {}, service_metrics, time);
  const auto built = builder.Build(WithOptimizer(), budget);
  ASSERT_TRUE(built.ok()) << built.status();
  const OptimizerConfig& optimizer = built->shards.at(0)->config().optimizer;
  EXPECT_EQ(optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(optimizer.lr, 0.25);
  ASSERT_EQ(optimizer.groups.size(), 1u);
  EXPECT_EQ(optimizer.groups[0].weight_decay, 0.5);
  EXPECT_EQ(built->shards.at(0)->arrays(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
}

TEST(Install, AnotherOptimizerMeansOtherShards) {
  Metrics metrics;
  ServiceMetrics service_metrics(metrics);
  ManualTime time;
  ShardTable table(PlainJob(), Timeouts{absl::Milliseconds(100)}, service_metrics, time, {});
  table.SetIdentity({JobId(7), ServerId(1)});
  ASSERT_TRUE(table.Install(WithOptimizer()).ok());
  EXPECT_TRUE(table.Install(WithOptimizer()).ok()) << "the same again";
  wire::InstallShardsRequest other = WithOptimizer();
  other.mutable_optimizer()->set_lr(0.5);
  EXPECT_TRUE(absl::IsFailedPrecondition(table.Install(other)));
}

TEST(Install, ShardsThatMoveComeWithTheOptimizer) {
  Metrics metrics;
  ServiceMetrics service_metrics(metrics);
  ManualTime time;
  ShardTable::Hooks hooks;
  hooks.on_backup = [](const wire::ReplicationSource*) {};
  ShardTable table(PlainJob(), Timeouts{absl::Milliseconds(100)}, service_metrics, time, std::move(hooks));
  table.SetIdentity({JobId(7), ServerId(1)});
  const wire::InstallShardsRequest install = WithOptimizer();
  wire::TakeShardsRequest take;
  take.set_job(7);
  take.set_server(1);
  take.set_move(1);
  take.set_trained_elements(install.trained_elements());
  take.set_samples_per_epoch(install.samples_per_epoch());
  take.mutable_from()->set_server(2);
  *take.mutable_shards() = install.shards();
  *take.mutable_groups() = install.groups();
  EXPECT_TRUE(absl::IsInvalidArgument(table.Take(take))) << "the job file has no such group";
  *take.mutable_optimizer() = install.optimizer();
  EXPECT_TRUE(table.Take(take).ok()) << table.Take(take);
}

// It is for the scheduler to find out that the one that it means is dead.
TEST(Install, CallsForAProcessThatHadThisAddressBeforeAreToBeTriedAgain) {
  Metrics metrics;
  ServiceMetrics service_metrics(metrics);
  ManualTime time;
  ShardTable table(PlainJob(), Timeouts{absl::Milliseconds(100)}, service_metrics, time, {});
  table.SetIdentity({JobId(7), ServerId(1), Incarnation(5)});
  wire::InstallShardsRequest own = Request();
  own.set_server_incarnation(5);
  ASSERT_TRUE(table.Install(own).ok());

  for (const uint64_t job : {7, 8}) {
    SCOPED_TRACE(job);
    const uint64_t meant = job == 7 ? 4 : 5;
    wire::InstallShardsRequest install = Request();
    install.set_job(job);
    install.set_server(2);
    install.set_server_incarnation(meant);
    EXPECT_TRUE(absl::IsUnavailable(table.Install(install))) << table.Install(install);
    wire::TakeShardsRequest take;
    take.set_job(job);
    take.set_server(2);
    take.set_server_incarnation(meant);
    EXPECT_TRUE(absl::IsUnavailable(table.Take(take))) << table.Take(take);
    wire::SetMembersRequest members;
    members.set_job(job);
    members.set_generation(1);
    members.set_server_incarnation(meant);
    EXPECT_TRUE(absl::IsUnavailable(table.SetMembers(members).status()));
    wire::BeginCheckpointRequest checkpoint;
    checkpoint.set_job(job);
    checkpoint.set_generation(1);
    checkpoint.set_server_incarnation(meant);
    EXPECT_TRUE(absl::IsUnavailable(table.BeginCheckpoint(checkpoint).status()));
  }
  own.set_server(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(table.Install(own))) << "this process is meant, and that makes no sense";
}

class RestoreTest : public testing::Test {
 protected:
  // One life of a server.
  struct Life {
    Metrics metrics;
    ServiceMetrics service_metrics{metrics};
    ManualTime time;
    std::vector<StoredShard> stores;
    std::unique_ptr<ShardTable> table;
  };

  RestoreTest() {
    std::string pattern = testing::TempDir() + "/install_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~RestoreTest() override { std::filesystem::remove_all(root_); }

  absl::Status Begin(Life& life, uint32_t restore_lineage) {
    ShardTable::Hooks hooks;
    hooks.on_stores = [&life](std::vector<StoredShard> stores) { life.stores = std::move(stores); };
    life.table = std::make_unique<ShardTable>(job_, Timeouts{absl::Milliseconds(100)}, life.service_metrics, life.time,
                                              std::move(hooks));
    life.table->SetIdentity({JobId(7), ServerId(1)});
    wire::InstallShardsRequest request = Request();
    request.set_snapshot_folder(root_ / "snapshots");
    request.set_restore_lineage(restore_lineage);
    return life.table->Install(request);
  }

  // All weights are `value`, at version (1, number).
  void Write(StoredShard& stored, float value, uint64_t number) {
    const uint64_t begin = stored.shard.value() * kElements;
    ShardState state({.begin = begin, .end = begin + kElements, .trained = kElements}, MakeOptimizerConfig(job_, 100),
                     job_.wire().chunk_bytes() / sizeof(float));
    const std::string bytes = Floats(kElements, value);
    ASSERT_TRUE(state.Seed(ByteSegments({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()})).ok());
    ShardSnapshot snapshot = {.numbers = state.Snapshot(), .engine = {}, .taken = absl::Now()};
    snapshot.engine.version = {Lineage(1), number};
    const auto kept = stored.store->Write(snapshot);
    ASSERT_TRUE(kept.ok()) << kept.status();
  }

  static float WeightOf(const ShardTable& table, uint32_t shard) {
    return table.TakeSnapshot(ShardId(shard))->numbers.weights.chunk(0)[0];
  }
  static Version VersionOf(const ShardTable& table, uint32_t shard) {
    return table.TakeSnapshot(ShardId(shard))->engine.version;
  }

  std::set<std::filesystem::path> Files() const {
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      if (entry.path().extension() == ".sst" && entry.file_size() > kBytes) files.insert(entry.path());
    }
    return files;
  }

  const job::Job job_ = PlainJob();
  std::filesystem::path root_;
};

TEST_F(RestoreTest, ShardsGoOnFromTheirNewestSnapshotsUnderALaterLineage) {
  {
    Life first;
    ASSERT_TRUE(Begin(first, 0).ok());
    ASSERT_EQ(first.stores.size(), 2u);
    EXPECT_FALSE(first.table->progress().report.durable());
    Write(first.stores[0], 5, 10);
    Write(first.stores[0], 6, 20);
    Write(first.stores[1], 7, 30);
  }
  for (const uint32_t lineage : {2u, 9u}) {
    Life next;
    ASSERT_TRUE(Begin(next, lineage).ok());
    EXPECT_EQ(WeightOf(*next.table, 0), 6);
    EXPECT_EQ(VersionOf(*next.table, 0), (Version{Lineage(lineage), 20}));
    EXPECT_EQ(WeightOf(*next.table, 1), 7);
    EXPECT_TRUE(next.table->progress().report.durable());
    EXPECT_TRUE(next.table->progress().report.seeded());
  }
}

TEST_F(RestoreTest, BrokenSnapshotIsPassedOver) {
  {
    Life first;
    ASSERT_TRUE(Begin(first, 0).ok());
    Write(first.stores[1], 7, 30);
    Write(first.stores[0], 5, 10);
    const std::set<std::filesystem::path> before = Files();
    Write(first.stores[0], 6, 20);
    for (const std::filesystem::path& path : Files()) {
      if (before.contains(path)) continue;
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(kBytes / 2);
      file.write("broken", 6);
    }
  }
  Life next;
  ASSERT_TRUE(Begin(next, 2).ok());
  EXPECT_EQ(WeightOf(*next.table, 0), 5);
  EXPECT_EQ(VersionOf(*next.table, 0), (Version{Lineage(2), 10}));
}

TEST_F(RestoreTest, ShardWithoutSnapshotIsNamed) {
  {
    Life first;
    ASSERT_TRUE(Begin(first, 0).ok());
    Write(first.stores[0], 5, 10);
  }
  Life next;
  const absl::Status status = Begin(next, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), testing::HasSubstr("shard 1: there is no snapshot to continue from"));
  EXPECT_FALSE(next.table->progress().report.seeded()) << "nothing is installed";
}

TEST_F(RestoreTest, SnapshotsAreNotOverwrittenByABeginning) {
  {
    Life first;
    ASSERT_TRUE(Begin(first, 0).ok());
    Write(first.stores[0], 5, 10);
  }
  Life next;
  const absl::Status status = Begin(next, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), testing::HasSubstr("has snapshots of this job"));
}

TEST_F(RestoreTest, TrainingBeginsThoughNoSnapshotsCanBeKept) {
  std::ofstream(root_ / "snapshots") << "a file in the way";
  Life life;
  ASSERT_TRUE(Begin(life, 0).ok());
  EXPECT_TRUE(life.stores.empty());
  EXPECT_FALSE(life.table->progress().report.durable());
  EXPECT_FALSE(Begin(life, 2).ok()) << "but nothing can be restored";
}

TEST_F(RestoreTest, LifeThatIsStillThereIsWaitedFor) {
  Life first;
  ASSERT_TRUE(Begin(first, 0).ok());
  for (StoredShard& stored : first.stores) Write(stored, 5, 10);
  Life next;
  EXPECT_EQ(Begin(next, 2).code(), absl::StatusCode::kUnavailable) << "to be tried again";
  first.stores.clear();
  EXPECT_TRUE(Begin(next, 2).ok());
}

}  // namespace
}  // namespace slackline::ps::install_test
