// Ranges of samples in blocks, and nodes that keep a part of the files: which range goes to whom, and how often files
// are read.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "common/base/split_mix.h"
#include "scheduler/work/data_ranges.h"
#include "scheduler/work/image_directory.h"

namespace slackline::scheduler::data_blocks_test {
namespace {

DataRanges::Config Blocks(const std::vector<uint32_t>& samples, uint32_t epochs = 1) {
  DataRanges::Config config;
  config.samples_per_epoch = 0;
  for (const uint32_t one : samples) config.samples_per_epoch += one;
  config.epochs = epochs;
  config.batch_size = 10;
  config.first_batches = 3;
  config.block_samples = samples;
  return config;
}

Holder Worker(uint32_t number) { return {WorkerId(number), Incarnation(number)}; }

std::optional<DataRange> Lease(DataRanges& ranges, const Holder& holder, const std::vector<uint8_t>& distances) {
  return ranges.Lease(holder, {.samples_per_second = 0, .distances = distances});
}

// Number of times that each sample of each epoch was trained.
using Counts = std::map<uint32_t, std::vector<int>>;

void CountTrained(const DataRange& range, uint64_t samples, Counts& counts) {
  std::vector<int>& epoch = counts[range.epoch];
  epoch.resize(samples);
  for (uint64_t i = range.begin; i < range.end; ++i) ++epoch[i];
}

TEST(DataBlocks, ARangeLiesInOneBlockAndNearOnesComeFirst) {
  struct Case {
    std::vector<uint8_t> distances;
    uint64_t begin;  // of the block
    uint64_t end;
  };
  for (const Case& one : {Case{{3, 0, 3, 3}, 20, 45}, Case{{2, 3, 3, 1}, 80, 100}, Case{{3, 3, 2, 3}, 45, 80},
                          Case{{5, 4, 5, 5}, 20, 45}}) {
    DataRanges ranges(Blocks({20, 25, 35, 20}));
    const auto range = Lease(ranges, Worker(1), one.distances);
    ASSERT_TRUE(range);
    EXPECT_GE(range->begin, one.begin);
    EXPECT_LE(range->end, one.end);
  }
}

TEST(DataBlocks, WhatIsLeftGoesToWhoeverAsksHoweverFarItIs) {
  DataRanges ranges(Blocks({20, 20}));
  uint64_t samples = 0;
  while (const auto range = Lease(ranges, Worker(1), {0, 5})) {
    samples += range->size();
    ASSERT_TRUE(ranges.Done(Worker(1), range->id).ok());
  }
  EXPECT_EQ(samples, 40u);
  EXPECT_TRUE(ranges.Finished());
}

TEST(DataBlocks, AFarBlockIsTakenWholeRatherThanBegun) {
  DataRanges ranges(Blocks({40, 40, 40}));
  const auto near = Lease(ranges, Worker(1), {0, 3, 3});
  ASSERT_TRUE(near && near->end <= 40);
  const auto far = Lease(ranges, Worker(2), {3, 5, 3});
  ASSERT_TRUE(far);
  EXPECT_EQ(far->begin, 80u) << "the first block has fewer samples left, the second one is farther";
}

TEST(DataBlocks, WithoutDistancesBlocksComeInAnOrderThatTheSeedDraws) {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    DataRanges::Config config = Blocks({10, 10, 10, 10, 10, 10});
    config.seed = seed;
    DataRanges ranges(config);
    std::vector<uint64_t> order;
    while (const auto range = ranges.Lease(Worker(1), {})) {
      order.push_back(range->begin);
      ASSERT_TRUE(ranges.Done(Worker(1), range->id).ok());
    }
    ASSERT_EQ(order.size(), 6u);
    orders.insert(order);
  }
  EXPECT_GE(orders.size(), 7u);
}

TEST(DataBlocks, ASavedStateIsCutIntoBlocks) {
  DataRanges::Config whole = Blocks({20, 20, 20}, /*epochs=*/2);
  whole.block_samples.clear();
  DataRanges before(whole);
  const auto done = before.Lease(Worker(1), {});
  ASSERT_TRUE(before.Done(Worker(1), done->id).ok());
  state::Ranges state;
  before.Save(state);
  DataRanges after(Blocks({20, 20, 20}, /*epochs=*/2));
  after.Restore(state);
  Counts counts;
  CountTrained(*done, 60, counts);
  while (const auto range = after.Lease(Worker(2), {})) {
    EXPECT_EQ(range->begin / 20, (range->end - 1) / 20);
    CountTrained(*range, 60, counts);
    ASSERT_TRUE(after.Done(Worker(2), range->id).ok());
  }
  for (const auto& [epoch, samples] : counts) EXPECT_THAT(samples, ::testing::Each(1)) << epoch;
  EXPECT_EQ(counts.size(), 2u);
}

// Workers that die, distances that change all the time, and a scheduler that begins anew: each sample is trained once
// in each epoch, but for those of the ranges that came back.
TEST(DataBlocks, EverySampleIsTrainedOnceWhateverTheDistances) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SplitMix64 random(seed);
    std::vector<uint32_t> samples(1 + random.Below(12));
    for (uint32_t& one : samples) one = static_cast<uint32_t>(1 + random.Below(70));
    const DataRanges::Config config = Blocks(samples, /*epochs=*/3);
    std::optional<DataRanges> ranges(std::in_place, config);
    Counts counts;
    std::map<uint32_t, DataRange> leased;
    uint32_t names = 4;
    for (int step = 0; !ranges->Finished(); ++step) {
      ASSERT_LT(step, 20'000) << "seed " << seed;
      const auto worker = static_cast<uint32_t>(1 + random.Below(4)) + names;
      std::vector<uint8_t> distances(random.Below(8) == 0 ? 0 : samples.size());
      for (uint8_t& distance : distances) distance = static_cast<uint8_t>(random.Below(6));
      if (random.Below(40) == 0) {
        ranges->Release(Worker(worker));
        leased.erase(worker);
      } else if (random.Below(100) == 0) {
        state::Ranges state;
        ranges->Save(state);
        ranges.emplace(config);
        ranges->Restore(state);
      } else if (leased.contains(worker) && random.Below(2) == 0) {
        CountTrained(leased.at(worker), config.samples_per_epoch, counts);
        ASSERT_TRUE(ranges->Done(Worker(worker), leased.at(worker).id).ok());
        leased.erase(worker);
      } else if (const auto range = Lease(*ranges, Worker(worker), distances)) {
        const auto [known, is_new] = leased.emplace(worker, *range);
        EXPECT_EQ(known->second, *range);
      }
    }
    ASSERT_EQ(counts.size(), 3u) << "seed " << seed;
    for (const auto& [epoch, trained] : counts) EXPECT_THAT(trained, ::testing::Each(1)) << "seed " << seed;
  }
}

// Nodes that train and keep files as workers do, in virtual time: only the copying is left out.
class SpreadWorld {
 public:
  struct Options {
    uint64_t seed = 1;
    uint32_t files = 48;
    uint32_t nodes = 4;
    uint32_t room = 12;  // files that a node can keep
    uint32_t epochs = 3;
    uint32_t samples = 40;  // of a file
    // Steps of the world until node 0 dies, for a while, and comes back with an empty cache; 0: it does not.
    int dies_after = 0;
  };

  explicit SpreadWorld(const Options& options)
      : options_(options),
        random_(options.seed),
        directory_(DirectoryOptions(options)),
        ranges_(Blocks(std::vector<uint32_t>(options.files, options.samples), options.epochs)),
        nodes_(options.nodes) {
    for (Node& node : nodes_) node.speed = 1 + random_.Below(4);
  }

  // Trains until all is done. Returns how often the origin was read, in data sets.
  double Train() {
    for (int step = 1; !ranges_.Finished(); ++step) {
      EXPECT_LT(step, 100'000);
      if (step > 100'000) break;
      now_ += absl::Milliseconds(10);
      const auto i = static_cast<uint32_t>(random_.Below(nodes_.size()));
      if (step == options_.dies_after) Die();
      if (options_.dies_after > 0 && step == 2 * options_.dies_after) nodes_[0].lives = true;
      Node& node = nodes_[i];
      if (!node.lives) continue;
      KeepShare(i, node);
      if (random_.Below(4) < node.speed) TrainRange(i, node);
      EXPECT_LE(node.kept.size(), options_.room);
    }
    return static_cast<double>(reads_) / options_.files;
  }
  const Counts& counts() const { return counts_; }
  uint64_t borrowed() const { return borrowed_; }

 private:
  struct Node {
    std::set<uint32_t> kept;
    std::vector<uint32_t> borrowed;
    std::optional<uint32_t> coming;
    bool full = false;
    bool lives = true;
    uint64_t speed = 1;
  };

  static ImageDirectory::Options DirectoryOptions(const Options& options) {
    ImageDirectory::Options directory;
    directory.silence_max = absl::Seconds(5);
    directory.nodes_expected = options.nodes;
    return directory;
  }

  wire::FindImagesRequest Question(uint32_t i, const Node& node) const {
    wire::FindImagesRequest request;
    request.set_address(absl::StrCat("node-", i));
    request.set_files(options_.files);
    request.set_spread(options_.files);
    request.set_files_checksum(1);
    std::string held((options_.files + 7) / 8, '\0');
    for (const uint32_t file : node.kept) held[file / 8] = static_cast<char>(held[file / 8] | 1 << (file % 8));
    request.set_held(held);
    request.set_full(node.full);
    request.set_patience_ms(60'000);
    return request;
  }

  // A file that was asked for is there at the next turn.
  void KeepShare(uint32_t i, Node& node) {
    if (node.coming) {
      Keep(*node.coming, node);
      node.coming.reset();
    }
    wire::FindImagesRequest request = Question(i, node);
    request.set_wants_share(true);
    const auto reply = directory_.Ask(request, now_);
    ASSERT_TRUE(reply.ok()) << reply.status();
    if (reply->has_drop()) {
      node.kept.erase(reply->drop());
      node.full = false;
    }
    if (!reply->has_file()) return;
    if (node.kept.size() == options_.room) {
      node.full = true;
    } else {
      node.coming = reply->file();
      ++reads_;
    }
  }

  void Keep(uint32_t file, Node& node) const {
    if (node.kept.size() < options_.room) node.kept.insert(file);
  }

  void TrainRange(uint32_t i, Node& node) {
    const Holder holder = Worker(i + 1);
    const std::vector<uint8_t> distances = directory_.DistancesFrom(absl::StrCat("node-", i), node.borrowed, now_);
    const auto range = ranges_.Lease(
        holder,
        {.samples_per_second = static_cast<double>(10 * node.speed), .workers = nodes_.size(), .distances = distances});
    if (!range) return;
    const auto file = static_cast<uint32_t>(range->begin / options_.samples);
    EXPECT_EQ(file, (range->end - 1) / options_.samples);
    if (!Get(i, node, file)) return;
    CountTrained(*range, ranges_.samples_total() / options_.epochs, counts_);
    EXPECT_TRUE(ranges_.Done(holder, range->id).ok());
  }

  // Returns false if the file is on its way to another node: the worker waits.
  bool Get(uint32_t i, Node& node, uint32_t file) {
    if (node.kept.contains(file) || std::count(node.borrowed.begin(), node.borrowed.end(), file) > 0) return true;
    if (node.coming == file) return false;
    wire::FindImagesRequest request = Question(i, node);
    request.set_needs(file);
    const auto reply = directory_.Ask(request, now_);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok() || !reply->has_file()) return false;
    if (reply->from().empty()) {
      ++reads_;
      node.full = node.full || node.kept.size() + (node.coming ? 1 : 0) >= options_.room;
      if (!node.full) {
        node.kept.insert(file);
        return true;
      }
    } else {
      ++borrowed_;
    }
    node.borrowed.insert(node.borrowed.begin(), file);
    if (node.borrowed.size() > 2) node.borrowed.pop_back();
    return true;
  }

  void Die() {
    ranges_.Release(Worker(1));
    nodes_[0] = Node{.kept = {}, .borrowed = {}, .coming = std::nullopt, .full = false, .lives = false, .speed = 2};
    now_ += absl::Seconds(1);
  }

  const Options options_;
  SplitMix64 random_;
  ImageDirectory directory_;
  DataRanges ranges_;
  std::vector<Node> nodes_;
  absl::Time now_ = absl::UnixEpoch();
  Counts counts_;
  uint64_t reads_ = 0;
  uint64_t borrowed_ = 0;
};

TEST(SpreadWorld, FourQuartersReadTheOriginOnceInThreeEpochs) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SpreadWorld world({.seed = seed});
    const double reads = world.Train();
    EXPECT_LE(reads, 1.1) << "seed " << seed;
    EXPECT_GE(reads, 1.0) << "seed " << seed;
    EXPECT_GT(world.borrowed(), 0u) << "workers are not equally fast";
    for (const auto& [epoch, trained] : world.counts()) EXPECT_THAT(trained, ::testing::Each(1)) << "seed " << seed;
    worst = std::max(worst, reads);
  }
  RecordProperty("reads_worst", absl::StrCat(worst));
}

TEST(SpreadWorld, WithLessRoomOnlyTheFilesThatNobodyKeepsAreReadAgain) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    // Four nodes have room for half of the files.
    SpreadWorld world({.seed = seed, .room = 6});
    const double reads = world.Train();
    EXPECT_LE(reads, 2.6) << "seed " << seed << ": half of the files in each of 3 epochs is 2.0";
    for (const auto& [epoch, trained] : world.counts()) EXPECT_THAT(trained, ::testing::Each(1)) << "seed " << seed;
  }
}

TEST(SpreadWorld, ANodeThatDiesCostsItsFilesAndNoSample) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SpreadWorld world({.seed = seed, .epochs = 4, .dies_after = 150});
    EXPECT_LE(world.Train(), 2.5) << "seed " << seed;
    for (const auto& [epoch, trained] : world.counts()) EXPECT_THAT(trained, ::testing::Each(1)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace slackline::scheduler::data_blocks_test
