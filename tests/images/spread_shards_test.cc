// Nodes that keep a part of the files each, and borrow the others: real caches, real HTTP, and the scheduler's own
// directory.
#include "images/prepared/spread_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/storage/checksum.h"
#include "images/base/npy.h"
#include "images/dataset/dataset.h"
#include "tests/images/local_board.h"
#include "tests/images/test_data.h"

namespace slackline::images::spread_shards_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kShards = 8;
constexpr uint64_t kRows = 10;
constexpr uint32_t kSide = 32;
constexpr absl::Duration kPatience = absl::Seconds(60);

// Eight files of ten images; all pixels of an image have its number.
class SpreadShardsTest : public ::testing::Test {
 protected:
  explicit SpreadShardsTest(size_t nodes = 2) : directory_(nodes) {
    fs::create_directory(folder_ / "origin");
    index_.classes = {"one"};
    index_.shape = {.channels = 1, .height = kSide, .width = kSide};
    index_.mean = {0};
    index_.deviation = {1};
    index_.splits = {{.name = "train", .shards = {}, .class_counts = {kShards * kRows}}};
    for (uint64_t shard = 0; shard < kShards; ++shard) index_.splits[0].shards.push_back(WriteShard(shard));
  }

  PreparedShard WriteShard(uint64_t shard) {
    std::string pixels = NpyHeaderText(kNpyUint8, {kRows, 1, kSide, kSide});
    for (uint64_t row = 0; row < kRows; ++row) pixels.append(kSide * kSide, static_cast<char>(kRows * shard + row));
    std::string labels = NpyHeaderText(kNpyInt64, {kRows});
    labels.append(kRows * sizeof(int64_t), '\0');
    return {.images = Write(absl::StrCat(shard, ".images"), pixels),
            .labels = Write(absl::StrCat(shard, ".labels"), labels),
            .rows = kRows};
  }
  PreparedFile Write(const std::string& name, const std::string& content) {
    WriteFile(folder_ / ("origin/" + name), Bytes(content.begin(), content.end()));
    return {.name = name, .bytes = content.size(), .checksum = ChecksumOf(content)};
  }
  const std::vector<PreparedShard>& shards() const { return index_.splits[0].shards; }
  uint64_t file_bytes() const { return shards()[0].images.bytes; }

  struct Node {
    std::string cache;
    std::unique_ptr<ImagePeers> peers;
    std::shared_ptr<SpreadShards> shards;
  };
  // A node whose cache has room for so many files.
  Node MakeNode(const std::string& name, uint64_t room) { return MakeNode(name, room, directory_); }
  Node MakeNode(const std::string& name, uint64_t room, SharedDirectory& directory) const {
    Node node;
    node.cache = folder_ / name;
    node.peers = *ImagePeers::Start({.serve = {}, .beat_every = absl::Milliseconds(5), .silence_max = kPatience},
                                    std::make_unique<LocalBoard>(directory));
    std::vector<PreparedFile> files;
    for (const PreparedShard& shard : shards()) files.push_back(shard.images);
    node.peers->Begin(files, files.size());
    node.shards = *SpreadShards::Begin({.store = {.path = folder_ / "origin",
                                                  .cache_folder = node.cache,
                                                  .cache_bytes_max = room * file_bytes(),
                                                  .fetch = {.silence_max = kPatience, .give_up = kPatience},
                                                  .peers = node.peers.get()},
                                        .shards = shards(),
                                        .index = index_});
    return node;
  }
  // The files in a cache, by name; checks that the cache has room for them.
  std::set<std::string> Kept(const Node& node, uint64_t room) const {
    std::set<std::string> names;
    uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(node.cache)) {
      const std::string name = entry.path().filename().string();
      if (absl::EndsWith(name, "lock")) continue;
      bytes += entry.file_size();
      names.insert(name);
    }
    EXPECT_LE(bytes, room * file_bytes()) << node.cache;
    return names;
  }
  // Waits until the directory knows that every file is kept by one node.
  void AwaitSpread(const Node& node, size_t own, size_t of_others) {
    const auto spread = [&] {
      const std::vector<uint8_t> distances = directory_.directory.DistancesFrom(node.peers->address(), {}, absl::Now());
      using D = scheduler::ImageDirectory;
      return static_cast<size_t>(std::count(distances.begin(), distances.end(), D::kHere)) == own &&
             static_cast<size_t>(std::count(distances.begin(), distances.end(), D::kElsewhere)) == of_others;
    };
    absl::MutexLock lock(&directory_.mutex);
    EXPECT_TRUE(directory_.mutex.AwaitWithTimeout(absl::Condition(&spread), kPatience));
  }
  // Every image of every file is right.
  static void ExpectAll(const Node& node) {
    for (uint64_t shard = 0; shard < kShards; ++shard) {
      const auto mapped = node.shards->Open(shard);
      ASSERT_TRUE(mapped.ok()) << mapped.status();
      for (uint64_t row = 0; row < kRows; ++row) {
        EXPECT_EQ((*mapped)->pixels[row * kSide * kSide + 7], kRows * shard + row);
      }
      EXPECT_LE(node.shards->Borrowed().size(), SpreadShards::kBorrowedMax);
    }
  }
  void LoseOrigin() const { fs::remove_all(folder_ / "origin"); }

  const TemporaryFolder folder_;
  PreparedIndex index_;
  SharedDirectory directory_;
};

TEST_F(SpreadShardsTest, EachNodeKeepsAPartAndBorrowsTheOtherFilesFromItsPeer) {
  const Node a = MakeNode("a", 4), b = MakeNode("b", 4);
  AwaitSpread(a, 4, 4);
  const std::set<std::string> of_a = Kept(a, 4), of_b = Kept(b, 4);
  EXPECT_EQ(of_a.size() + of_b.size(), kShards);
  for (const std::string& name : of_a) EXPECT_FALSE(of_b.contains(name)) << name;
  LoseOrigin();
  for (int epoch = 0; epoch < 3; ++epoch) {
    ExpectAll(a);
    ExpectAll(b);
  }
  EXPECT_EQ(Kept(a, 4), of_a) << "what is borrowed goes into no cache";
}

TEST_F(SpreadShardsTest, TrainingBeginsBeforeAnyFileIsHereAndAFullNodeReadsTheRestFromTheOrigin) {
  const Node a = MakeNode("a", 3);
  ExpectAll(a);
  EXPECT_EQ(Kept(a, 3).size(), 3u);
  LoseOrigin();
  size_t here = 0;
  std::string refusal;
  for (uint64_t shard = 0; shard < kShards; ++shard) {
    const auto mapped = a.shards->Open(shard);
    if (mapped.ok()) ++here;
    if (!mapped.ok()) refusal = std::string(mapped.status().message());
  }
  // A file that was borrowed may have become one of the three.
  EXPECT_GE(here, 3u);
  EXPECT_LE(here, 3 + SpreadShards::kBorrowedMax);
  EXPECT_THAT(refusal, HasSubstr("origin/"));
}

TEST_F(SpreadShardsTest, NodesThatHaveTheSameFilesGiveSomeUpForThoseThatNobodyHas) {
  {
    // The directory of this test would count the files of a node that is gone.
    SharedDirectory earlier(2);
    const Node first = MakeNode("a", 4, earlier);
    ExpectAll(first);
  }
  fs::copy(folder_ / "a", folder_ / "b");
  const Node a = MakeNode("a", 4), b = MakeNode("b", 4);
  AwaitSpread(a, 4, 4);
  LoseOrigin();
  ExpectAll(a);
  ExpectAll(b);
  EXPECT_EQ(Kept(a, 4).size(), 4u);
}

TEST_F(SpreadShardsTest, AnotherWorkerOfTheNodeSharesItsFiles) {
  const Node a = MakeNode("cache", 8), b = MakeNode("cache", 8);
  ExpectAll(a);
  LoseOrigin();
  ExpectAll(b);
  EXPECT_EQ(b.peers->bytes_fetched(), 0u);
}

TEST_F(SpreadShardsTest, StopEndsTheWaitForAFile) {
  const Node a = MakeNode("a", 1);
  a.shards->Stop();
  bool stopped = false;
  for (uint64_t shard = 0; shard < kShards; ++shard) {
    const absl::Status status = a.shards->Open(shard).status();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    stopped = stopped || absl::IsCancelled(status);
  }
  EXPECT_TRUE(stopped);
}

TEST_F(SpreadShardsTest, ADataSetReadsItsImagesThroughThem) {
  const Node a = MakeNode("a", 4), b = MakeNode("b", 4);
  const auto data = Dataset::OpenStreamed("origin", InFolder(folder_ / "origin"), a.shards, index_, "train",
                                          /*images_max=*/kShards * kRows - 3);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->size(), kShards * kRows - 3);
  std::vector<uint32_t> blocks(kShards, kRows);
  blocks.back() = kRows - 3;
  EXPECT_EQ(data->BlockSamples(), blocks);
  Batch batch;
  ASSERT_TRUE(data->Load({0, 35, 76, 11}, 0, 1, batch).ok());
  const float images[] = {0, 35, 76, 11};
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(batch.images[i * kSide * kSide], images[i] / 255) << i;
}

}  // namespace
}  // namespace slackline::images::spread_shards_test
