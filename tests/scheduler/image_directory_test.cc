#include "scheduler/work/image_directory.h"

#include <optional>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"

namespace slackline::scheduler::image_directory_test {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kFiles = 10;

// Questions about ten files, at times that the test says.
class ImageDirectoryTest : public ::testing::Test {
 protected:
  static wire::FindImagesRequest Question(const std::string& who, const std::set<uint32_t>& holds, bool wants = true) {
    wire::FindImagesRequest request;
    request.set_address(who);
    request.set_files_checksum(7);
    request.set_files(kFiles);
    std::string held((kFiles + 7) / 8, '\0');
    for (const uint32_t file : holds) held[file / 8] = static_cast<char>(held[file / 8] | 1 << (file % 8));
    request.set_held(held);
    request.set_wants(wants);
    request.set_patience_ms(60'000);
    return request;
  }
  static std::set<uint32_t> AllBut(std::set<uint32_t> missing) {
    std::set<uint32_t> held;
    for (uint32_t file = 0; file < kFiles; ++file) {
      if (!missing.contains(file)) held.insert(file);
    }
    return held;
  }
  // "3 from a", "3 from origin", "wait", or what was refused.
  std::string Ask(const wire::FindImagesRequest& request) {
    const auto reply = directory_.Ask(request, now_);
    if (!reply.ok()) return std::string(reply.status().message());
    if (!reply->has_file()) return reply->retry_ms() > 0 ? "wait" : "no time to wait";
    return absl::StrCat(reply->file(), " from ", reply->from().empty() ? "origin" : reply->from());
  }
  std::string Ask(const std::string& who, const std::set<uint32_t>& holds) { return Ask(Question(who, holds)); }

  static ImageDirectory::Options Small(size_t nodes_expected) {
    ImageDirectory::Options options;
    options.silence_max = absl::Seconds(5);
    options.nodes_expected = nodes_expected;
    options.nodes_max = 4;
    options.files_max = 100;
    return options;
  }
  explicit ImageDirectoryTest(size_t nodes_expected = 1) : directory_(Small(nodes_expected)) {}

  ImageDirectory directory_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ImageDirectoryTest, EachFileComesFromTheOriginOnceHoweverManyAsk) {
  // Each gets what it is told at once, and asks again, in turns.
  std::map<std::string, std::set<uint32_t>> holds = {{"a", {}}, {"b", {}}, {"c", {}}};
  std::multiset<uint32_t> from_origin;
  for (int turn = 0; turn < 50; ++turn) {
    std::map<std::string, uint32_t> gets;
    for (const auto& [who, held] : holds) {
      const auto reply = directory_.Ask(Question(who, held), now_);
      ASSERT_TRUE(reply.ok());
      if (!reply->has_file()) continue;
      gets[who] = reply->file();
      if (reply->from().empty()) {
        from_origin.insert(reply->file());
      } else {
        EXPECT_TRUE(holds[reply->from()].contains(reply->file()));
      }
    }
    for (const auto& [who, file] : gets) EXPECT_TRUE(holds[who].insert(file).second);
  }
  EXPECT_EQ(from_origin.size(), kFiles);
  EXPECT_EQ(std::set<uint32_t>(from_origin.begin(), from_origin.end()).size(), kFiles);
  for (const auto& [who, held] : holds) EXPECT_EQ(held.size(), kFiles) << who;
}

TEST_F(ImageDirectoryTest, WhatIsOnItsWayToSomebodyIsWaitedFor) {
  EXPECT_EQ(Ask("a", AllBut({3})), "3 from origin");
  EXPECT_EQ(Ask("b", AllBut({3})), "wait");
  EXPECT_EQ(Ask("a", AllBut({})), "wait") << "nothing is missing";
  EXPECT_EQ(Ask("b", AllBut({3})), "3 from a");
}

TEST_F(ImageDirectoryTest, WhoIsSilentOrTakesTooLongIsNotWaitedFor) {
  EXPECT_EQ(Ask("a", AllBut({3})), "3 from origin");
  now_ += absl::Seconds(4);
  EXPECT_EQ(Ask("b", AllBut({3})), "wait");
  now_ += absl::Seconds(2);
  EXPECT_EQ(Ask("b", AllBut({3})), "3 from origin") << "a is silent";
  for (int i = 0; i < 30; ++i) {
    now_ += absl::Seconds(2);
    EXPECT_EQ(Ask(Question("b", AllBut({3}), /*wants=*/false)), "wait");
  }
  EXPECT_EQ(Ask("c", AllBut({3})), "3 from origin") << "b had a minute";
}

TEST_F(ImageDirectoryTest, WhatTheFewestHoldIsNextAndWhoServesTheFewestGivesIt) {
  EXPECT_EQ(Ask(Question("a", {1, 2}, false)), "wait");
  EXPECT_EQ(Ask(Question("b", {2}, false)), "wait");
  EXPECT_EQ(Ask("c", AllBut({1, 2})), "1 from a");
  EXPECT_EQ(Ask("d", AllBut({2})), "2 from b") << "a serves c";
}

TEST_F(ImageDirectoryTest, WhoHasFailedIsNotNamedAgain) {
  EXPECT_EQ(Ask(Question("a", {3}, false)), "wait");
  wire::FindImagesRequest request = Question("b", AllBut({3}));
  EXPECT_EQ(Ask(request), "3 from a");
  request.add_failed("a");
  EXPECT_EQ(Ask(request), "3 from origin");
  EXPECT_EQ(Ask("c", AllBut({3})), "3 from a") << "others may reach it";
}

TEST_F(ImageDirectoryTest, WhatMakesNoSenseIsRefusedAndChangesNothing) {
  EXPECT_EQ(Ask(Question("a", {3}, false)), "wait");
  auto request = Question("b", {});
  request.set_files_checksum(8);
  EXPECT_THAT(Ask(request), HasSubstr("has read another index.json than others of the job: 10 files, theirs has 10"));
  request = Question("b", {});
  request.set_held("");
  EXPECT_EQ(Ask(request), "found 0 bytes for 10 files; allowed are 2");
  request = Question("", {});
  EXPECT_THAT(Ask(request), HasSubstr("found an address of 0 bytes"));
  request = Question("b", {});
  request.set_files(0);
  EXPECT_EQ(Ask(request), "found no files; allowed are 1 and more");
  EXPECT_EQ(Ask("b", AllBut({3})), "3 from a");
}

TEST_F(ImageDirectoryTest, NodesAndFilesAreLimited) {
  for (const char* who : {"a", "b", "c", "d"}) EXPECT_EQ(Ask(Question(who, {}, false)), "wait");
  EXPECT_THAT(Ask("e", {}), HasSubstr("found 5 workers that share images; allowed are 4"));
  auto request = Question("a", {});
  request.set_files(101);
  EXPECT_THAT(Ask(request), HasSubstr("found 101 files; allowed are 100"));
  now_ += absl::Seconds(6);
  EXPECT_THAT(Ask("e", {}), HasSubstr("from origin")) << "the others are gone";
}

// Questions about ten files, of which the first eight are spread over two nodes.
class SpreadFilesTest : public ImageDirectoryTest {
 protected:
  static constexpr uint32_t kSpread = 8;

  SpreadFilesTest() : ImageDirectoryTest(/*nodes_expected=*/2) {}

  static wire::FindImagesRequest Share(const std::string& who, const std::set<uint32_t>& holds, bool full = false) {
    wire::FindImagesRequest request = Question(who, holds, /*wants=*/false);
    request.set_spread(kSpread);
    request.set_wants_share(true);
    request.set_full(full);
    return request;
  }
  static wire::FindImagesRequest Need(const std::string& who, const std::set<uint32_t>& holds, uint32_t file,
                                      bool full = false) {
    wire::FindImagesRequest request = Share(who, holds, full);
    request.set_wants_share(false);
    request.set_needs(file);
    return request;
  }
  std::optional<uint32_t> FileOf(const wire::FindImagesRequest& request) {
    const auto reply = directory_.Ask(request, now_);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() && reply->has_file() ? std::optional(reply->file()) : std::nullopt;
  }
  std::optional<uint32_t> DropOf(const wire::FindImagesRequest& request) {
    const auto reply = directory_.Ask(request, now_);
    EXPECT_TRUE(reply.ok() && !reply->has_file()) << reply.status();
    return reply.ok() && reply->has_drop() ? std::optional(reply->drop()) : std::nullopt;
  }
  // Gives the node its share; returns what it holds then.
  std::set<uint32_t> Fill(const std::string& who, std::set<uint32_t> holds, size_t room) {
    while (true) {
      const bool full = holds.size() >= room;
      const std::optional<uint32_t> file = FileOf(Share(who, holds, full));
      if (!file) return holds;
      const bool good = *file < kSpread && !full && holds.insert(*file).second;
      EXPECT_TRUE(good) << *file;
      if (!good) return holds;
    }
  }
};

TEST_F(SpreadFilesTest, EachFileHasOneNodeAndSharesAreEqual) {
  const std::set<uint32_t> a = Fill("a", {}, 8), b = Fill("b", {}, 8);
  EXPECT_EQ(a.size(), 4u) << "a leaves room for the other node that the job expects";
  EXPECT_EQ(b.size(), 4u);
  for (const uint32_t file : a) EXPECT_FALSE(b.contains(file)) << file;
  EXPECT_EQ(Fill("a", a, 8), a);
}

TEST_F(SpreadFilesTest, AFullNodeLeavesTheRestToOthers) {
  const std::set<uint32_t> a = Fill("a", {}, 2);
  EXPECT_EQ(a.size(), 2u);
  EXPECT_EQ(Fill("b", {}, 8).size(), 6u) << "more than its share, since a is full";
}

TEST_F(SpreadFilesTest, TheShareOfADeadNodeGoesToTheOthers) {
  const std::set<uint32_t> a = Fill("a", {}, 8);
  Fill("b", {}, 8);
  now_ += absl::Seconds(6);
  EXPECT_EQ(Fill("a", a, 8).size(), 8u);
}

TEST_F(SpreadFilesTest, FilesThatEveryNodeGetsAreNotSpread) {
  auto request = Share("a", {});
  request.set_wants_share(false);
  request.set_wants(true);
  EXPECT_GE(*FileOf(request), kSpread);
  request = Question("a", {8, 9});
  request.set_spread(kSpread);
  EXPECT_EQ(Ask(request), "wait") << "spread files are not missing";
}

TEST_F(SpreadFilesTest, ANeededFileComesFromItsHolderOrItsOriginOrIsAwaited) {
  EXPECT_EQ(Ask(Need("a", {}, 3)), "3 from origin");
  EXPECT_EQ(Ask(Need("b", {}, 3)), "wait") << "a is reading it, and keeps it";
  EXPECT_EQ(Ask(Need("b", {}, 4)), "4 from origin");
  EXPECT_EQ(Ask(Share("a", {3}, /*full=*/true)), "wait");
  EXPECT_EQ(Ask(Need("b", {}, 3)), "3 from a");
  EXPECT_EQ(Ask(Need("a", {3}, 5, /*full=*/true)), "5 from origin");
  EXPECT_EQ(Ask(Need("b", {}, 5)), "5 from origin") << "a is full, and will not have it";
}

TEST_F(SpreadFilesTest, AFullNodeGivesUpACopyOnlyForAFileThatNobodyHas) {
  EXPECT_EQ(DropOf(Share("a", {0, 1, 2, 3}, true)), std::nullopt);
  EXPECT_EQ(DropOf(Share("b", {1, 4, 5, 6, 7}, true)), std::nullopt) << "all have a node";
  EXPECT_EQ(DropOf(Share("b", {1, 4, 5, 6}, true)), 1u);
  EXPECT_EQ(DropOf(Share("a", {0, 1, 2, 3}, true)), std::nullopt) << "the last copy stays";
}

TEST_F(SpreadFilesTest, DistancesFollowTheFiles) {
  EXPECT_TRUE(directory_.DistancesFrom("a", {}, now_).empty());
  EXPECT_EQ(Ask(Need("a", {0}, 1)), "1 from origin");
  EXPECT_EQ(Ask(Need("b", {2}, 3)), "3 from origin");
  EXPECT_THAT(directory_.DistancesFrom("a", {7}, now_), ::testing::ElementsAre(0, 1, 3, 4, 2, 2, 2, 0));
  EXPECT_EQ(Ask(Share("a", {0}, /*full=*/true)), "wait");
  EXPECT_THAT(directory_.DistancesFrom("a", {}, now_), ::testing::ElementsAre(0, 5, 3, 4, 5, 5, 5, 5));
}

TEST_F(SpreadFilesTest, QuestionsThatMakeNoSenseAreRefused) {
  auto request = Share("a", {});
  request.set_spread(11);
  EXPECT_EQ(Ask(request), "found 11 spread files of 10");
  EXPECT_EQ(Ask(Need("a", {}, 8)), "found spread file 8; allowed are those below 8");
  EXPECT_EQ(Ask(Need("a", {}, 7)), "7 from origin");
  EXPECT_EQ(Ask(Question("b", {})), "this worker spreads 0 files over the nodes, others of the job 8");
}

}  // namespace
}  // namespace slackline::scheduler::image_directory_test
