// Files and folders of checkpoints: written data is read back, and broken data is recognised.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/model_reader.h"
#include "common/checkpoint/shard_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::checkpoint::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr JobId kJob{0xabc};
constexpr uint64_t kElements = 1000, kTrained = 900, kBlock = 64;

// Value of an element in an array.
float ValueOf(uint64_t array, uint64_t element) { return static_cast<float>(array * 10000 + element); }

std::vector<float> Values(uint64_t array, uint64_t begin, uint64_t end) {
  std::vector<float> values(end - begin);
  for (uint64_t i = begin; i < end; ++i) values[i - begin] = ValueOf(array, i);
  return values;
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = testing::TempDir() + "/checkpoint_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    state_.set_job(kJob.value());
  }
  ~CheckpointTest() override { fs::remove_all(root_); }

  // Elements [begin, end) of the model, with one array of an optimizer.
  static ShardHeader HeaderFor(uint32_t shard, uint64_t begin, uint64_t end) {
    ShardHeader header;
    header.set_shard(shard);
    header.set_begin(begin);
    header.set_end(end);
    header.set_trained(std::min(end, kTrained) - std::min(begin, kTrained));
    header.set_block_elements(kBlock);
    header.set_lineage(2);
    header.set_version(40 + shard);
    header.set_staleness_mean(0.25);
    const std::pair<const char*, uint64_t> arrays[] = {{"weights", end - begin}, {"momentum", header.trained()}};
    for (const auto& [name, elements] : arrays) {
      Array& array = *header.add_arrays();
      array.set_name(name);
      array.set_elements(elements);
    }
    return header;
  }

  static wire::CheckpointFile WriteShard(const fs::path& folder, uint32_t shard, uint64_t begin, uint64_t end) {
    const ShardHeader header = HeaderFor(shard, begin, end);
    auto writer = ShardFileWriter::Create(folder, header);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (uint64_t array = 0; array < 2; ++array) {
      const std::vector<float> values = Values(array, begin, begin + header.arrays(static_cast<int>(array)).elements());
      // In pieces that are no multiple of a block.
      for (size_t at = 0; at < values.size(); at += 50) {
        EXPECT_TRUE((*writer)->Append(absl::MakeSpan(values).subspan(at, 50)).ok());
      }
    }
    auto file = (*writer)->Finish();
    EXPECT_TRUE(file.ok()) << file.status();
    return *file;
  }

  // A checkpoint of this number whose shards end at `ends`.
  fs::path MakeBest(uint64_t number, double accuracy) {
    best_.emplace().mutable_evaluation()->set_accuracy(accuracy);
    return Make(number);
  }

  fs::path Make(uint64_t number, const std::vector<uint64_t>& ends = {300, 950, kElements}) {
    const fs::path partial = root_ / PartialNameOf(number, kJob);
    fs::create_directories(partial);
    Manifest manifest;
    manifest.set_number(number);
    *manifest.mutable_scheduler() = state_;
    manifest.set_elements(kElements);
    manifest.set_trained_elements(kTrained);
    if (best_) *manifest.mutable_best() = *std::exchange(best_, std::nullopt);
    uint64_t begin = 0;
    for (uint32_t shard = 0; shard < ends.size(); ++shard) {
      *manifest.add_files() = WriteShard(partial, shard, begin, ends[shard]);
      begin = ends[shard];
    }
    const auto whole = Commit(root_, manifest);
    EXPECT_TRUE(whole.ok()) << whole.status();
    return whole.ok() ? *whole : fs::path();
  }

  static void Flip(const fs::path& path, uint64_t byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(byte));
    const char found = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(byte));
    file.put(static_cast<char>(found ^ 0x10));
  }

  static absl::Status StateOf(const fs::path& path) {
    const absl::StatusOr<Manifest> manifest = ReadManifest(path);
    return manifest.ok() ? Verify(path, *manifest, /*thorough=*/true) : manifest.status();
  }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path root_;
  state::Scheduler state_;
  std::optional<Best> best_;  // of the next one
};

TEST_F(CheckpointTest, AnyRangeIsReadBackWhateverItsShardsWere) {
  auto reader = ModelReader::Open(Make(1));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT((*reader)->arrays(), ElementsAre("weights", "momentum"));
  for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, kElements}, {0, 1}, {299, 301}, {63, 65}, {250, 980}, {999, 1000}, {500, 500}}) {
    for (uint64_t array = 0; array < 2; ++array) {
      const uint64_t last = array == 0 ? end : std::min(end, kTrained);
      if (last < begin) continue;
      std::vector<float> out(last - begin);
      const absl::Status read = (*reader)->Read(array, begin, absl::MakeSpan(out));
      ASSERT_TRUE(read.ok()) << read;
      EXPECT_EQ(out, Values(array, begin, last)) << array << ": " << begin << " to " << last;
    }
  }
}

TEST_F(CheckpointTest, ShardWithMostOfTheElementsSpeaksForThem) {
  auto reader = ModelReader::Open(Make(1));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->HeaderOf(0, 400)->version(), 40);
  EXPECT_EQ((*reader)->HeaderOf(250, 400)->version(), 41);
  EXPECT_EQ((*reader)->HeaderOf(0, kElements)->version(), 41);
  EXPECT_EQ((*reader)->HeaderOf(990, kElements)->staleness_mean(), 0.25);
}

TEST_F(CheckpointTest, EveryFlippedBitIsFound) {
  const fs::path path = Make(1, {kElements});
  ASSERT_TRUE(StateOf(path).ok()) << StateOf(path);
  const fs::path file = path / ShardFileName(0);
  const uint64_t bytes = fs::file_size(file);
  for (uint64_t byte = 0; byte < bytes; byte += 37) {
    Flip(file, byte);
    EXPECT_EQ(StateOf(path).code(), absl::StatusCode::kDataLoss) << "byte " << byte << " of " << bytes;
    Flip(file, byte);
  }
  ASSERT_TRUE(StateOf(path).ok());
}

TEST_F(CheckpointTest, ManifestOfANewerVersionIsRefusedWithTheFieldThatItHas) {
  const fs::path path = Make(1);
  std::ifstream in(path / "manifest.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t at = text.find("\"format\": 1,");
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "\"of_later\": 3, ");
  // Its checksum is of a field, too, that is not known here.
  const size_t number = text.find("\"900\"");
  ASSERT_NE(number, std::string::npos);
  text.replace(number, 5, "\"800\"");
  std::ofstream(path / "manifest.json") << text;
  EXPECT_EQ(StateOf(path).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(StateOf(path).message(), testing::AllOf(HasSubstr("a newer version"), HasSubstr("of_later")));
}

TEST_F(CheckpointTest, ManifestThatWasTouchedIsRefused) {
  const fs::path path = Make(1);
  std::ifstream in(path / "manifest.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t at = text.find("\"900\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 5, "\"800\"");
  std::ofstream(path / "manifest.json") << text;
  EXPECT_EQ(StateOf(path).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(StateOf(path).message(), HasSubstr("its checksum is wrong"));
  std::ofstream(path / "manifest.json") << text.substr(0, text.size() / 2);
  EXPECT_THAT(StateOf(path).message(), HasSubstr("is no manifest"));
}

TEST_F(CheckpointTest, ShortAndMissingFilesAreNamedWithoutReadingThem) {
  const fs::path path = Make(1);
  const auto manifest = ReadManifest(path);
  ASSERT_TRUE(manifest.ok());
  fs::resize_file(path / ShardFileName(1), 100);
  EXPECT_THAT(Verify(path, *manifest, /*thorough=*/false).message(),
              HasSubstr("shard-00001.safetensors has 100 bytes"));
  fs::remove(path / ShardFileName(1));
  EXPECT_EQ(Verify(path, *manifest, /*thorough=*/false).code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, BrokenOnesArePassedOverAndNamed) {
  Make(1);
  const fs::path second = Make(2), third = Make(3);
  Flip(second / ShardFileName(1), fs::file_size(second / ShardFileName(1)) - 1);
  fs::remove(third / "manifest.json");
  auto choice = ChooseNewest(root_);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->manifest.number(), 1);
  ASSERT_THAT(choice->passed_over, SizeIs(2));
  EXPECT_THAT(choice->passed_over[0], HasSubstr("checkpoint-000003: found no checkpoint"));
  EXPECT_THAT(choice->passed_over[1], HasSubstr("block 9 of momentum is wrong"));
  fs::remove_all(root_ / NameOf(1));
  EXPECT_EQ(ChooseNewest(root_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ChooseNewest(root_).status().message(), HasSubstr("checkpoint-000002"));
}

TEST_F(CheckpointTest, OnlyTheNewestStay) {
  for (const uint64_t number : {1, 2, 3, 4}) Make(number);
  fs::create_directories(root_ / "something-else");
  const auto pruned = Prune(root_, {.newest = 2}, root_ / NameOf(1));
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_THAT(*pruned, ElementsAre("checkpoint-000002"));
  EXPECT_THAT(Names(), ElementsAre("checkpoint-000001", "checkpoint-000003", "checkpoint-000004", "something-else"));
}

TEST_F(CheckpointTest, TheBestOnesStayBesideTheNewest) {
  uint64_t number = 0;
  for (const double accuracy : {0.5, 0.9, 0.7, 0.9, 0.6}) MakeBest(++number, accuracy);
  Make(6);
  auto best = ChooseBest(root_);
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->manifest.number(), 4) << "as good as 2, and newer";
  const auto pruned = Prune(root_, {.newest = 1, .best = 2});
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_THAT(Names(), ElementsAre("checkpoint-000002", "checkpoint-000004", "checkpoint-000006"));
  fs::remove(root_ / NameOf(4) / "manifest.json");
  best = ChooseBest(root_);
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->manifest.number(), 2);
  EXPECT_THAT(best->passed_over, IsEmpty()) << "nobody can say that it was one of the best";
}

TEST_F(CheckpointTest, AnEvaluationWithoutAnAccuracyIsNotTheBestOne) {
  MakeBest(1, 0.5);
  best_.emplace().mutable_evaluation()->set_without_accuracy(true);
  Make(2);
  Make(3);
  auto best = ChooseBest(root_);
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->manifest.number(), 1);
  const auto pruned = Prune(root_, {.newest = 1, .best = 2});
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_THAT(Names(), ElementsAre("checkpoint-000001", "checkpoint-000003"));
}

TEST_F(CheckpointTest, TheBestOneGoesByTheMetricOfTheNewest) {
  uint64_t number = 0;
  MakeBest(++number, 0.9);  // of an earlier version, which compared accuracies
  for (const double perplexity : {30.0, 20.0, 25.0}) {
    best_.emplace().set_metric("perplexity");
    best_->set_lower_is_better(true);
    wire::NamedValue& value = *best_->mutable_evaluation()->add_values();
    value.set_name("perplexity");
    value.set_value(perplexity);
    Make(++number);
  }
  const auto best = ChooseBest(root_);
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->manifest.number(), 3);
}

TEST_F(CheckpointTest, WithoutEvaluationsNoneIsTheBest) {
  Make(1);
  const absl::Status none = ChooseBest(root_).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("checkpoint.keep_best"));
}

TEST_F(CheckpointTest, WhatWasNotFinishedGoesAndItsNumberIsNotGivenAgain) {
  Make(1);
  fs::create_directories(root_ / PartialNameOf(2, kJob));
  fs::create_directories(root_ / PartialNameOf(5, kJob));
  EXPECT_EQ(LastNumber(root_), 5);
  ASSERT_TRUE(PrunePartial(root_, 4).ok());
  EXPECT_THAT(Names(), ElementsAre("checkpoint-000001", "checkpoint-000005.0000000000000abc.partial"));
}

TEST_F(CheckpointTest, LaterOnesOfARunThatWentBackAreNotTheNewest) {
  for (const uint64_t number : {1, 2, 3}) Make(number);
  ASSERT_TRUE(PutAsideAfter(root_, 1).ok());
  EXPECT_EQ(ChooseNewest(root_)->manifest.number(), 1);
  EXPECT_THAT(Names(), ElementsAre("checkpoint-000001", "checkpoint-000002.undone", "checkpoint-000003.undone"));
  EXPECT_EQ(LastNumber(root_), 3);
}

TEST_F(CheckpointTest, NumbersThatAreNoneAreReadBack) {
  for (const double value : {-std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    state_.add_evaluations()->set_loss(value);
  }
  const fs::path path = Make(1);
  EXPECT_TRUE(StateOf(path).ok()) << StateOf(path);
}

TEST_F(CheckpointTest, PartialOneIsNone) {
  fs::create_directories(root_ / PartialNameOf(7, kJob));
  WriteShard(root_ / PartialNameOf(7, kJob), 0, 0, kElements);
  EXPECT_THAT(List(root_), IsEmpty());
  EXPECT_THAT(List(root_ / "nowhere"), IsEmpty());
}

TEST_F(CheckpointTest, FilesThatTheSchedulerDoesNotSeeAreNoCheckpoint) {
  const fs::path partial = root_ / PartialNameOf(1, kJob);
  fs::create_directories(partial);
  Manifest manifest;
  manifest.set_number(1);
  *manifest.mutable_scheduler() = state_;
  manifest.set_elements(kElements);
  *manifest.add_files() = WriteShard(partial, 0, 0, kElements);
  fs::remove(partial / ShardFileName(0));
  const auto committed = Commit(root_, manifest);
  EXPECT_EQ(committed.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(committed.status().message(), HasSubstr("checkpoint.folder must be seen by the scheduler"));
  EXPECT_THAT(List(root_), IsEmpty());
}

TEST_F(CheckpointTest, NothingIsThereBeforeAFileIsFinished) {
  {
    auto writer = ShardFileWriter::Create(root_, HeaderFor(0, 0, kElements));
    ASSERT_TRUE(writer.ok());
    const std::vector<float> values = Values(0, 0, 100);
    ASSERT_TRUE((*writer)->Append(values).ok());
  }
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(CheckpointTest, RunsOfOneNameHaveFoldersOfTheirOwn) {
  EXPECT_EQ(FolderOfRun("", "/a/run"), "/a/run/checkpoints");
  EXPECT_EQ(FolderOfRun("", "/a/run/"), "/a/run/checkpoints");
  EXPECT_EQ(FolderOfRun("/c", "/a/run"), FolderOfRun("/c", "/a/b/../run/"));
  EXPECT_NE(FolderOfRun("/c", "/a/run"), FolderOfRun("/c", "/b/run"));
}

}  // namespace
}  // namespace slackline::checkpoint::checkpoint_test
