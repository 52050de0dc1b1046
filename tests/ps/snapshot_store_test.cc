#include "ps/store/snapshot_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/common/failing_disk.h"

namespace slackline::ps::snapshot_store_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSize = 5000, kTrained = 4700, kBlock = 1024;

class SnapshotStoreTest : public ::testing::Test {
 protected:
  SnapshotStoreTest() {
    std::string pattern = ::testing::TempDir() + "/snapshot_store_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    options_.folder = root_ / "state" / "shard-3";
  }
  ~SnapshotStoreTest() override {
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  void Open() {
    store_.reset();
    auto store = SnapshotStore::Open(options_, identity_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  static ShardState MakeShard() {
    const OptimizerConfig config{.kind = OptimizerKind::kAdam, .lr = 0.01};
    return ShardState({.begin = 100, .end = 100 + kSize, .trained = kTrained}, config, kBlock);
  }
  void Step(ShardState& shard, int number) {
    std::vector<float> gradient(kSize);
    for (size_t i = 0; i < kSize; ++i) gradient[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(number));
    if (!shard.seeded()) {
      ASSERT_TRUE(shard.Seed(ByteSegments(Raw(gradient))).ok());
    }
    Contribution part = {.pieces = {{.elements = kSize, .bytes = ByteSegments(Raw(gradient))}}};
    shard.Apply({part}, {.samples = 5, .staleness = 1.5});
    ++engine_.version.number;
    engine_.samples_applied += 5;
  }
  static absl::Span<const std::byte> Raw(const std::vector<float>& values) {
    return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
  }
  ShardSnapshot Snapshot(const ShardState& shard) const {
    return {.numbers = shard.Snapshot(), .engine = engine_, .taken = absl::FromUnixSeconds(1'700'000'000)};
  }
  uint64_t WriteAfterStep(ShardState& shard, int number) {
    Step(shard, number);
    const auto kept = store_->Write(Snapshot(shard));
    EXPECT_TRUE(kept.ok()) << kept.status();
    return kept.ok() ? kept->id : 0;
  }
  // Puts something else in the place of a snapshot's manifest; nobody has it open then.
  void Break(uint64_t id, const std::string& bytes = "\xff no message") {
    store_.reset();
    std::string key = "m";
    for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(id >> shift));
    ASSERT_TRUE((*Database::Open(options_.folder))->PutSynced(key, bytes).ok());
  }
  static std::vector<float> Values(const SliceView& view) {
    std::vector<float> values(view.elements());
    view.CopyTo(absl::MakeSpan(values));
    return values;
  }
  static void ExpectEqual(const ShardState& one, const ShardState& other) {
    const ShardView a = one.Snapshot(), b = other.Snapshot();
    EXPECT_EQ(Values(a.weights), Values(b.weights));
    ASSERT_EQ(a.arrays.size(), b.arrays.size());
    for (size_t i = 0; i < a.arrays.size(); ++i) EXPECT_EQ(Values(a.arrays[i]), Values(b.arrays[i])) << i;
    EXPECT_EQ(a.progress.steps, b.progress.steps);
    EXPECT_EQ(a.progress.samples_applied, b.progress.samples_applied);
    EXPECT_EQ(a.progress.staleness_mean, b.progress.staleness_mean);
  }
  std::vector<std::filesystem::path> FilesOfArrays() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.folder)) {
      if (entry.path().extension() == ".sst" && entry.file_size() > kBlock) files.push_back(entry.path());
    }
    return files;
  }

  std::filesystem::path root_;
  StoreOptions options_;
  ShardIdentity identity_ = {.job = JobId(77),
                             .shard = ShardId(3),
                             .extent = {.begin = 100, .end = 100 + kSize, .trained = kTrained},
                             .arrays = {"exp_avg", "exp_avg_sq"}};
  EngineState engine_ = {
      .version = {Lineage(2), 40},
      .samples_applied = 200,
      .clock_floor = Clock64(7),
      .workers = {{.sender = {WorkerId(1), Incarnation(9)},
                   .clock = Clock64(12),
                   .answers = {{.sequence = Sequence(11),
                                .outcome = Outcome::kDiscarded,
                                .reason = DiscardReason::kLate,
                                .version = {Lineage(2), 39},
                                .staleness = 0},
                               {.sequence = Sequence(12), .version = {Lineage(2), 40}, .staleness = 3}}}},
      .gone = {{WorkerId(4), Incarnation(8)}}};
  std::unique_ptr<SnapshotStore> store_;
};

TEST_F(SnapshotStoreTest, ShardIsReadAsItWasWritten) {
  Open();
  EXPECT_TRUE(store_->kept().empty());
  ShardState shard = MakeShard();
  const uint64_t id = WriteAfterStep(shard, 1);
  EXPECT_EQ(store_->kept().front().bytes, (kSize + 2 * kTrained) * sizeof(float));
  Open();
  ASSERT_EQ(store_->kept().size(), 1u);
  EXPECT_EQ(store_->kept().front().id, id);
  EXPECT_EQ(store_->kept().front().version, engine_.version);
  EXPECT_EQ(store_->kept().front().taken, absl::FromUnixSeconds(1'700'000'000));
  ShardState restored = MakeShard();
  const auto engine = store_->Read(id, restored);
  ASSERT_TRUE(engine.ok()) << engine.status();
  ExpectEqual(restored, shard);
  EXPECT_EQ(engine->version, engine_.version);
  EXPECT_EQ(engine->samples_applied, engine_.samples_applied);
  EXPECT_EQ(engine->clock_floor, engine_.clock_floor);
  ASSERT_EQ(engine->workers.size(), 1u);
  EXPECT_EQ(engine->workers[0].sender, engine_.workers[0].sender);
  EXPECT_EQ(engine->workers[0].clock, engine_.workers[0].clock);
  EXPECT_EQ(engine->workers[0].answers, engine_.workers[0].answers);
  EXPECT_EQ(engine->gone, engine_.gone);
}

TEST_F(SnapshotStoreTest, WhatIsTakenStaysAsItWasWhileStepsGoOn) {
  Open();
  ShardState shard = MakeShard();
  Step(shard, 1);
  const ShardSnapshot snapshot = Snapshot(shard);
  ShardState same = MakeShard();
  engine_.version.number = 40;
  Step(same, 1);
  Step(shard, 2);
  const auto kept = store_->Write(snapshot);
  ASSERT_TRUE(kept.ok()) << kept.status();
  ShardState restored = MakeShard();
  ASSERT_TRUE(store_->Read(kept->id, restored).ok());
  ExpectEqual(restored, same);
}

TEST_F(SnapshotStoreTest, OldOnesGoAndTheirPlaceIsFreeAgain) {
  options_.file_bytes = 8 * kBlock;  // several files each
  Open();
  ShardState shard = MakeShard();
  std::vector<uint64_t> ids;
  size_t files = 0;
  for (int number = 1; number <= 6; ++number) {
    ids.push_back(WriteAfterStep(shard, number));
    if (number == 2) files = FilesOfArrays().size();
  }
  EXPECT_GT(files, 4u);
  EXPECT_EQ(FilesOfArrays().size(), files);
  ASSERT_EQ(store_->kept().size(), 2u);
  EXPECT_EQ(store_->kept()[0].id, ids[5]);
  EXPECT_EQ(store_->kept()[1].id, ids[4]);
  ShardState other = MakeShard();
  EXPECT_EQ(store_->Read(ids[3], other).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->Read(ids[4], other).ok());
}

TEST_F(SnapshotStoreTest, OneFolderIsForOneProcessAtATime) {
  Open();
  const auto second = SnapshotStore::Open(options_, identity_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted) << second.status();
  EXPECT_THAT(second.status().message(), HasSubstr("another process has it open"));
}

TEST_F(SnapshotStoreTest, SnapshotsOfOthersAreNotTaken) {
  Open();
  ShardState shard = MakeShard();
  WriteAfterStep(shard, 1);
  store_.reset();
  identity_.job = JobId(78);
  const auto other = SnapshotStore::Open(options_, identity_);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.status().message(),
              AllOf(HasSubstr("found a snapshot of shard 3 of job 77"), HasSubstr("wanted is shard 3 of job 78")));
}

TEST_F(SnapshotStoreTest, ABrokenManifestIsPassedOverAndOthersServe) {
  Open();
  ShardState shard = MakeShard();
  const uint64_t older = WriteAfterStep(shard, 1);
  ShardState same = MakeShard();
  Step(same, 1);
  const uint64_t newer = WriteAfterStep(shard, 2);
  Break(newer);
  Open();
  ASSERT_EQ(store_->kept().size(), 1u);
  EXPECT_EQ(store_->kept()[0].id, older);
  ShardState restored = MakeShard();
  ASSERT_TRUE(store_->Read(older, restored).ok());
  ExpectEqual(restored, same);
  EXPECT_GT(WriteAfterStep(shard, 3), newer);
  Open();
  EXPECT_EQ(store_->kept().size(), 2u);
}

TEST_F(SnapshotStoreTest, WithBrokenManifestsAloneNothingIsThere) {
  Open();
  ShardState shard = MakeShard();
  Break(WriteAfterStep(shard, 1));
  EXPECT_TRUE(absl::IsDataLoss(SnapshotStore::Open(options_, identity_).status()));
}

TEST_F(SnapshotStoreTest, ManifestsOfALaterFormatAreLeftAlone) {
  Open();
  ShardState shard = MakeShard();
  WriteAfterStep(shard, 1);
  snapshot::Manifest later;
  later.set_format(99);
  Break(WriteAfterStep(shard, 2), later.SerializeAsString());
  const absl::Status status = SnapshotStore::Open(options_, identity_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("a snapshot of format 99; this program knows format 1"));
}

TEST_F(SnapshotStoreTest, BrokenBlockIsFoundAndNamedAndTheOneBeforeServes) {
  Open();
  ShardState shard = MakeShard();
  const uint64_t older = WriteAfterStep(shard, 1);
  ShardState same = MakeShard();
  Step(same, 1);
  std::set<std::filesystem::path> before;
  for (const auto& path : FilesOfArrays()) before.insert(path);
  const uint64_t newer = WriteAfterStep(shard, 2);
  store_.reset();
  for (const auto& path : FilesOfArrays()) {
    if (before.contains(path)) continue;
    // A bit of a weight.
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(2 * kBlock);
    const char byte = static_cast<char>(file.get());
    file.seekp(2 * kBlock);
    file.put(static_cast<char>(byte ^ 4));
  }
  Open();
  ShardState broken = MakeShard();
  const auto read = store_->Read(newer, broken);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
  EXPECT_FALSE(broken.seeded());
  ShardState restored = MakeShard();
  ASSERT_TRUE(store_->Read(older, restored).ok());
  ExpectEqual(restored, same);
}

class FullDiskTest : public SnapshotStoreTest {
 protected:
  FullDiskTest() { options_.disk = env_.get(); }
  ~FullDiskTest() override { store_.reset(); }

  const std::shared_ptr<FailingDisk> disk_ = std::make_shared<FailingDisk>();
  const std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
};

TEST_F(FullDiskTest, AFileSystemWithoutLocksIsNotTakenForAnotherProcess) {
  disk_->SetLockless(true);
  const auto store = SnapshotStore::Open(options_, identity_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable) << store.status();
  EXPECT_THAT(store.status().message(), AllOf(HasSubstr("the file system knows no locks (No locks available)"),
                                              HasSubstr("durability.mode: none")));
  disk_->SetLockless(false);
  Open();
}

// Wherever the space ends: in the arrays, in the database's own files, in the manifest.
TEST_F(FullDiskTest, NothingIsLostAndALaterSnapshotSucceeds) {
  Open();
  ShardState shard = MakeShard();
  const uint64_t first = WriteAfterStep(shard, 1);
  ShardState same = MakeShard();
  Step(same, 1);
  int failures = 0;
  const int64_t bytes = static_cast<int64_t>(store_->kept().front().bytes);
  for (int64_t room = 0; room < bytes + 6000; room += room < bytes ? 9001 : 101) {
    disk_->SetRoom(room);
    const auto full = store_->Write(Snapshot(shard));
    disk_->SetRoom(std::numeric_limits<int64_t>::max());
    if (full.ok()) break;
    ++failures;
    ASSERT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted) << room << ": " << full.status();
    ASSERT_EQ(store_->kept().size(), 1u);
    ShardState restored = MakeShard();
    ASSERT_TRUE(store_->Read(first, restored).ok()) << room;
    ExpectEqual(restored, same);
  }
  EXPECT_GT(failures, 5);
  const uint64_t later = WriteAfterStep(shard, 2);
  EXPECT_GT(later, first);
  Open();
  ASSERT_EQ(store_->kept().size(), 2u);
  ShardState restored = MakeShard();
  ASSERT_TRUE(store_->Read(later, restored).ok());
  ExpectEqual(restored, shard);
}

TEST_F(FullDiskTest, BrokenDiskIsSaid) {
  Open();
  ShardState shard = MakeShard();
  Step(shard, 1);
  disk_->SetBroken(true);
  const auto failed = store_->Write(Snapshot(shard));
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(failed.status().message(), AllOf(HasSubstr(options_.folder.string()), HasSubstr("the disk is broken")));
  disk_->SetBroken(false);
  EXPECT_TRUE(store_->Write(Snapshot(shard)).ok());
}

}  // namespace
}  // namespace slackline::ps::snapshot_store_test
