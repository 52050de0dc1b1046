// A server's part of a checkpoint: shards are cut at the version where they should be, and other shards continue from
// what was written.
#include "ps/store/checkpoint_part.h"

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/folder.h"
#include "common/log/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/service/shard_table.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::checkpoint_part_test {
namespace {

using ::testing::HasSubstr;

// Of the model; its last elements are averaged.
constexpr uint64_t kSize = 6000, kTrained = 5500, kChunk = 1024;
const OptimizerConfig kAdam{.kind = OptimizerKind::kAdam, .lr = 0.01};

ShardExtent Extent(uint64_t begin, uint64_t end) {
  return {.begin = begin, .end = end, .trained = std::min(end, kTrained) - std::min(begin, kTrained)};
}

// The part of a shard in the model's gradient of this step.
std::vector<float> GradientOf(const ShardExtent& extent, int step) {
  std::vector<float> values(extent.size());
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(extent.begin + i + 1) * static_cast<float>(step));
  }
  return values;
}

absl::Span<const std::byte> RawBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

void TakeStep(ShardState& shard, int step) {
  const std::vector<float> gradient = GradientOf(shard.extent(), step);
  if (!shard.seeded()) {
    ASSERT_TRUE(shard.Seed(ByteSegments(RawBytes(gradient))).ok());
  }
  const Contribution part = {.pieces = {{.elements = gradient.size(), .bytes = ByteSegments(RawBytes(gradient))}}};
  shard.Apply({part}, {.samples = 5});
}

std::vector<float> AllOf(const SliceView& view) {
  std::vector<float> all;
  for (size_t i = 0; i < view.chunks(); ++i) all.insert(all.end(), view.chunk(i).begin(), view.chunk(i).end());
  return all;
}

std::vector<std::string> ArraysOf(const ShardState& shard) {
  std::vector<std::string> names;
  for (const absl::string_view name : shard.optimizer().arrays()) names.emplace_back(name);
  return names;
}

class CheckpointPartTest : public testing::Test {
 protected:
  CheckpointPartTest() {
    std::string pattern = testing::TempDir() + "/checkpoint_part_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~CheckpointPartTest() override { std::filesystem::remove_all(root_); }

  // Shards that end there, after three steps.
  static std::vector<std::unique_ptr<ShardState>> Trained(const std::vector<uint64_t>& ends) {
    std::vector<std::unique_ptr<ShardState>> shards;
    uint64_t begin = 0;
    for (const uint64_t end : ends) {
      shards.push_back(std::make_unique<ShardState>(Extent(begin, end), kAdam, kChunk));
      for (int step = 1; step <= 3; ++step) TakeStep(*shards.back(), step);
      begin = end;
    }
    return shards;
  }

  std::filesystem::path Write(const std::vector<std::unique_ptr<ShardState>>& shards) {
    const std::filesystem::path partial = root_ / checkpoint::PartialNameOf(1, JobId(5));
    std::filesystem::create_directories(partial);
    checkpoint::Manifest manifest;
    manifest.set_number(1);
    manifest.mutable_scheduler()->set_job(5);
    manifest.set_elements(kSize);
    manifest.set_trained_elements(kTrained);
    for (uint32_t i = 0; i < shards.size(); ++i) {
      const ShardCut cut = {.shard = ShardId(i),
                            .extent = shards[i]->extent(),
                            .arrays = ArraysOf(*shards[i]),
                            .numbers = shards[i]->Snapshot(),
                            .version = {Lineage(3), 40 + i},
                            .engine_samples = 15,
                            .clock_min = Clock64(7)};
      const auto file = WriteCut(partial, JobId(5), cut, [] { return false; });
      EXPECT_TRUE(file.ok()) << file.status();
      *manifest.add_files() = *file;
    }
    const auto whole = checkpoint::Commit(root_, manifest);
    EXPECT_TRUE(whole.ok()) << whole.status();
    return *whole;
  }

  // A shard that goes on from there.
  absl::StatusOr<EngineState> Read(const std::filesystem::path& path, ShardState& shard) {
    auto reader = checkpoint::ModelReader::Open(path);
    if (!reader.ok()) return reader.status();
    return ReadPart(**reader, shard.extent(), ArraysOf(shard), shard);
  }

  std::filesystem::path root_;
};

TEST_F(CheckpointPartTest, OtherShardsGoOnAsIfTheyHadAlwaysBeen) {
  const std::filesystem::path path = Write(Trained({2500, kSize}));
  for (const std::vector<uint64_t>& ends :
       {std::vector<uint64_t>{2500, kSize}, {kSize}, {100, 2600, 5499, 5600, kSize}}) {
    const std::vector<std::unique_ptr<ShardState>> expected = Trained(ends);
    for (const std::unique_ptr<ShardState>& shard : expected) {
      ShardState next(shard->extent(), kAdam, kChunk);
      const auto engine = Read(path, next);
      ASSERT_TRUE(engine.ok()) << engine.status();
      EXPECT_EQ(engine->version.lineage, Lineage(3));
      EXPECT_EQ(engine->clock_floor, Clock64(7));
      EXPECT_EQ(next.samples_applied(), 15);
      // To the bit, also what the optimizer has learned: the next step shows it.
      for (int step = 4; step <= 6; ++step) {
        TakeStep(*shard, step);
        TakeStep(next, step);
        EXPECT_EQ(AllOf(next.View()), AllOf(shard->View())) << shard->extent().begin << ", step " << step;
      }
    }
  }
}

TEST_F(CheckpointPartTest, CutStaysAsItWasWhileStepsGoOn) {
  std::vector<std::unique_ptr<ShardState>> shards = Trained({kSize});
  const std::vector<float> before = AllOf(shards[0]->View());
  const ShardCut cut = {.shard = ShardId(0),
                        .extent = shards[0]->extent(),
                        .arrays = ArraysOf(*shards[0]),
                        .numbers = shards[0]->Snapshot(),
                        .version = {Lineage(1), 3},
                        .clock_min = {}};
  int chunks = 0;
  const auto file = WriteCut(root_, JobId(5), cut, [&] {
    TakeStep(*shards[0], 4 + chunks++);
    return false;
  });
  ASSERT_TRUE(file.ok());
  auto reader = checkpoint::ShardFileReader::Open(root_, *file);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> written(kSize);
  ASSERT_TRUE((*reader)->Read(0, 0, absl::MakeSpan(written)).ok());
  EXPECT_EQ(written, before);
  EXPECT_GT(chunks, 5);
}

TEST_F(CheckpointPartTest, WhatIsGivenUpLeavesNothing) {
  const std::vector<std::unique_ptr<ShardState>> shards = Trained({kSize});
  const ShardCut cut = {.shard = ShardId(0),
                        .extent = shards[0]->extent(),
                        .arrays = ArraysOf(*shards[0]),
                        .numbers = shards[0]->Snapshot(),
                        .version = {},
                        .clock_min = {}};
  int asked = 0;
  const auto file = WriteCut(root_, JobId(5), cut, [&] { return ++asked > 3; });
  EXPECT_EQ(file.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(CheckpointPartTest, WeightsThatAreNotFiniteAreNotKept) {
  ShardState shard(Extent(0, 100), {.kind = OptimizerKind::kSgd, .lr = 1}, kChunk);
  TakeStep(shard, 1);
  const std::vector<float> gradient(100, 3e38f);
  const Contribution part = {.pieces = {{.elements = 100, .bytes = ByteSegments(RawBytes(gradient))}}};
  for (int i = 0; i < 3; ++i) shard.Apply({part}, {.samples = 1});
  const ShardCut cut = {.shard = ShardId(0),
                        .extent = shard.extent(),
                        .arrays = ArraysOf(shard),
                        .numbers = shard.Snapshot(),
                        .version = {},
                        .clock_min = {}};
  EXPECT_EQ(WriteCut(root_, JobId(5), cut, [] { return false; }).status().message(), "a weight is not finite");
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(CheckpointPartTest, AnotherModelOrOptimizerIsRefused) {
  const std::filesystem::path path = Write(Trained({kSize}));
  ShardState sgd(Extent(0, 100), {.kind = OptimizerKind::kSgd}, kChunk);
  EXPECT_EQ(Read(path, sgd).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Read(path, sgd).status().message(), HasSubstr("this job's optimizer needs weights"));
  ShardState larger({.begin = 0, .end = kSize + 1, .trained = kTrained}, kAdam, kChunk);
  EXPECT_THAT(Read(path, larger).status().message(), HasSubstr("the checkpoint's model has 6000 elements"));
  ShardState more_trained({.begin = 0, .end = kSize, .trained = kSize}, kAdam, kChunk);
  EXPECT_EQ(Read(path, more_trained).status().code(), absl::StatusCode::kFailedPrecondition);
  ShardState less_trained({.begin = 0, .end = kSize, .trained = 10}, kAdam, kChunk);
  EXPECT_EQ(Read(path, less_trained).status().code(), absl::StatusCode::kFailedPrecondition);
}

// --- The table --------------------------------------------------------------------------------------------------

class CutTest : public CheckpointPartTest {
 protected:
  CutTest() {
    ShardTable::Hooks hooks;
    hooks.on_cut = [this](CheckpointCut cut) { cuts_.push_back(std::move(cut)); };
    job_.mutable_optimizer()->set_kind(job::Optimizer::ADAM);
    table_ = std::make_unique<ShardTable>(job_, Timeouts{absl::Milliseconds(100)}, service_metrics_, time_,
                                          std::move(hooks));
    table_->SetIdentity({JobId(7), ServerId(1)});
  }

  // Two shards, from a checkpoint at version 40; without weights if there is none.
  absl::Status Install(const std::string& checkpoint) {
    wire::InstallShardsRequest request;
    request.set_job(7);
    request.set_server(1);
    request.set_generation(1);
    request.set_samples_per_epoch(100);
    request.set_trained_elements(kTrained);
    request.set_checkpoint_folder(checkpoint);
    for (uint32_t shard = 0; shard < 2; ++shard) {
      wire::ShardSpec& spec = *request.add_shards();
      spec.set_shard(shard);
      spec.set_begin(shard * kSize / 2);
      spec.set_end((shard + 1) * kSize / 2);
    }
    return table_->Install(request);
  }

  static wire::BeginCheckpointRequest Request(uint64_t checkpoint, uint32_t attempt = 1) {
    wire::BeginCheckpointRequest request;
    request.set_job(7);
    request.set_generation(1);
    request.set_checkpoint(checkpoint);
    request.set_attempt(attempt);
    request.set_folder("somewhere");
    return request;
  }

  job::Job job_ = PlainJob();
  Metrics metrics_;
  ServiceMetrics service_metrics_{metrics_};
  ManualTime time_;
  std::vector<CheckpointCut> cuts_;
  std::unique_ptr<ShardTable> table_;
};

TEST_F(CutTest, ShardsWithoutWeightsAreNotCut) {
  EXPECT_EQ(table_->BeginCheckpoint(Request(1)).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Install("").ok());
  const auto begun = table_->BeginCheckpoint(Request(1));
  EXPECT_EQ(begun.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(begun.status().message(), HasSubstr("shard 0 has no weights yet"));
}

TEST_F(CutTest, ShardsAreCutOnceEachAndTheOutcomeIsToldUntilItIsHeard) {
  ASSERT_TRUE(Install(Write(Trained({kSize}))).ok());
  auto begun = table_->BeginCheckpoint(Request(3));
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_TRUE(begun->begun());
  EXPECT_EQ(begun->version_max(), 40);
  ASSERT_EQ(cuts_.size(), 1);
  EXPECT_EQ(cuts_[0].shards.size(), 2);
  EXPECT_EQ(cuts_[0].checkpoint, 3);
  EXPECT_TRUE(table_->BeginCheckpoint(Request(3))->begun()) << "the same call again";
  EXPECT_EQ(cuts_.size(), 1);
  EXPECT_FALSE(table_->cuts().progress().done());
  table_->cuts().Done(2, 1, absl::DataLossError("of another one"));
  EXPECT_FALSE(table_->cuts().progress().done());
  table_->cuts().Done(3, 1, std::vector<wire::CheckpointFile>(2));
  EXPECT_TRUE(table_->cuts().progress().done());
  EXPECT_EQ(table_->cuts().progress().files_size(), 2);
  EXPECT_EQ(table_->progress().report.checkpoint().checkpoint(), 3);
  table_->cuts().Heard(2);
  EXPECT_EQ(table_->cuts().progress().checkpoint(), 3);
  table_->cuts().Heard(3);
  EXPECT_EQ(table_->cuts().progress().checkpoint(), 0);
  EXPECT_EQ(table_->BeginCheckpoint(Request(2)).status().code(), absl::StatusCode::kFailedPrecondition)
      << "an earlier one that was late";
}

// The scheduler tries again every second.
TEST_F(CutTest, AFullDiskIsSaidOnce) {
  log::Initialise("test");
  ASSERT_TRUE(Install(Write(Trained({kSize}))).ok());
  ::testing::internal::CaptureStderr();
  const auto fail = [&](uint64_t checkpoint, const absl::Status& why) {
    ASSERT_TRUE(table_->BeginCheckpoint(Request(checkpoint)).ok());
    table_->cuts().Done(checkpoint, 1, why);
  };
  const absl::Status full = absl::ResourceExhaustedError("no space left");
  for (uint64_t checkpoint = 1; checkpoint <= 5; ++checkpoint) fail(checkpoint, full);
  fail(6, absl::UnavailableError("the disk is broken"));
  fail(7, full);
  ASSERT_TRUE(table_->BeginCheckpoint(Request(8)).ok());
  table_->cuts().Done(8, 1, std::vector<wire::CheckpointFile>());
  fail(9, full);
  log::Flush();
  const std::string said = ::testing::internal::GetCapturedStderr();
  std::vector<std::string> of;
  for (const absl::string_view line : absl::StrSplit(said, '\n')) {
    if (absl::StrContains(line, "cannot write the part of this server"))
      of.push_back(std::string(line.substr(line.find("checkpoint "), 12)));
  }
  EXPECT_EQ(of, (std::vector<std::string>{"checkpoint 1", "checkpoint 6", "checkpoint 7", "checkpoint 9"})) << said;
}

TEST_F(CutTest, CutIsAtTheVersionOrNotAtAll) {
  ASSERT_TRUE(Install(Write(Trained({kSize}))).ok());
  wire::BeginCheckpointRequest request = Request(1);
  request.set_ask_only(true);
  auto reply = table_->BeginCheckpoint(request);
  ASSERT_TRUE(reply.ok());
  EXPECT_FALSE(reply->begun());
  EXPECT_EQ(reply->version_min(), 40);
  request = Request(1, 2);
  request.set_at_version(39);
  EXPECT_FALSE(table_->BeginCheckpoint(request)->begun()) << "it is past that";
  request = Request(1, 3);
  request.set_at_version(42);
  EXPECT_TRUE(table_->BeginCheckpoint(request)->begun());
  EXPECT_TRUE(cuts_.empty());
  EXPECT_EQ(table_->cuts().progress().awaited_version(), 40);
  request = Request(1, 4);
  request.set_at_version(40);
  EXPECT_TRUE(table_->BeginCheckpoint(request)->begun());
  ASSERT_EQ(cuts_.size(), 1) << "a later attempt takes the place of an earlier one";
  EXPECT_EQ(cuts_[0].attempt, 4);
  EXPECT_EQ(cuts_[0].shards[0].version.number, 40);
}

TEST_F(CutTest, CallsForAnotherLifeJobOrMapAreRefused) {
  ASSERT_TRUE(Install(Write(Trained({kSize}))).ok());
  wire::BeginCheckpointRequest other = Request(1);
  other.set_job(8);
  EXPECT_EQ(table_->BeginCheckpoint(other).status().code(), absl::StatusCode::kFailedPrecondition);
  other = Request(1);
  other.set_generation(2);
  EXPECT_EQ(table_->BeginCheckpoint(other).status().code(), absl::StatusCode::kFailedPrecondition);
  other = Request(0);
  EXPECT_EQ(table_->BeginCheckpoint(other).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cuts_.empty());
}

TEST_F(CutTest, CheckpointThatIsNotThereIsNamed) {
  const absl::Status status = Install("/nowhere/checkpoint-000001");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("this server must see the checkpoints of the job"));
}

}  // namespace
}  // namespace slackline::ps::checkpoint_part_test
