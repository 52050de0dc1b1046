// Nodes that get files together and serve each other: real caches, real HTTP, and the scheduler's own directory.
#include "images/prepared/image_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/storage/checksum.h"
#include "images/prepared/prepared_store.h"
#include "tests/images/broken_file_server.h"
#include "tests/images/local_board.h"
#include "tests/images/test_data.h"

namespace slackline::images::image_peers_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kFileBytes = 300'000;

std::string CopyText(const std::string& path) {
  const Bytes bytes = ReadFile(path);
  return {bytes.begin(), bytes.end()};
}

// Sends everybody to one peer for the first file, and to the origin for others.
class OnePeerBoard : public PeerBoard {
 public:
  explicit OnePeerBoard(std::string peer) : peer_(std::move(peer)) {}
  absl::StatusOr<Answer> Ask(const Question& question) override {
    Answer answer = {.file = std::nullopt, .from = "", .retry = absl::Milliseconds(10)};
    if (!question.wants) return answer;
    for (uint32_t file = 0; file < question.files && !answer.file; ++file) {
      if ((question.held[file / 8] >> (file % 8) & 1) == 0) answer.file = file;
    }
    if (question.failed.empty()) answer.from = peer_;
    return answer;
  }

 private:
  const std::string peer_;
};

class SilentBoard : public PeerBoard {
 public:
  absl::StatusOr<Answer> Ask(const Question&) override { return absl::UnavailableError("nobody there"); }
};

class ImagePeersTest : public ::testing::Test {
 protected:
  explicit ImagePeersTest(int files = 8) {
    fs::create_directory(folder_ / "origin");
    for (int i = 0; i < files; ++i) {
      const std::string text(kFileBytes + static_cast<uint64_t>(i), static_cast<char>('a' + i));
      const std::string name = absl::StrCat("file-", i);
      WriteFile(folder_ / ("origin/" + name), Bytes(text.begin(), text.end()));
      files_.push_back({.name = name, .bytes = text.size(), .checksum = ChecksumOf(text)});
      texts_.push_back(text);
    }
  }

  // A node with a cache of its own.
  struct Node {
    std::unique_ptr<ImagePeers> peers;
    std::unique_ptr<PreparedStore> store;
  };
  Node MakeNode(const std::string& name, std::unique_ptr<PeerBoard> board) {
    Node node;
    node.peers = *ImagePeers::Start({.serve = {}, .beat_every = absl::Milliseconds(20), .silence_max = silence_max_},
                                    std::move(board));
    node.store = std::make_unique<PreparedStore>(*PreparedStore::Open({.path = folder_ / "origin",
                                                                       .cache_folder = folder_ / name,
                                                                       .cache_bytes_max = uint64_t{1} << 30,
                                                                       .fetch = {},
                                                                       .peers = node.peers.get()}));
    return node;
  }
  Node MakeNode(const std::string& name) { return MakeNode(name, std::make_unique<LocalBoard>(directory_)); }
  // All files are there, and right; how many bytes came from the origin.
  uint64_t Gather(Node& node) {
    const absl::Status together = node.store->GetTogether(files_);
    EXPECT_TRUE(together.ok()) << together;
    const uint64_t from_origin = node.store->bytes_from_origin();
    for (size_t i = 0; i < files_.size(); ++i) {
      const auto held = node.store->Get(files_[i]);
      EXPECT_TRUE(held.ok()) << held.status();
      EXPECT_TRUE(held.ok() && CopyText(held->path) == texts_[i]) << i;
    }
    return from_origin;
  }
  uint64_t total() const {
    uint64_t bytes = 0;
    for (const PreparedFile& file : files_) bytes += file.bytes;
    return bytes;
  }

  const TemporaryFolder folder_;
  std::vector<PreparedFile> files_;
  std::vector<std::string> texts_;
  SharedDirectory directory_;
  absl::Duration silence_max_ = absl::Milliseconds(300);
};

TEST_F(ImagePeersTest, FourNodesReadTheOriginOnce) {
  silence_max_ = absl::Seconds(30);  // a busy machine must not look like a node that is gone
  std::vector<Node> nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(MakeNode(absl::StrCat("cache-", i)));
  std::vector<uint64_t> from_origin(nodes.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < nodes.size(); ++i) {
    threads.emplace_back([&, i] { from_origin[i] = Gather(nodes[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t read = 0, fetched = 0, served = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    read += from_origin[i];
    fetched += nodes[i].peers->bytes_fetched();
    served += nodes[i].peers->bytes_served();
  }
  EXPECT_EQ(read, total());
  EXPECT_EQ(fetched, 3 * total());
  EXPECT_EQ(served, 3 * total());
}

TEST_F(ImagePeersTest, ANodeThatIsGoneCostsTheOriginNotTheRun) {
  {
    Node first = MakeNode("first");
    EXPECT_EQ(Gather(first), total());
  }
  Node second = MakeNode("second");
  EXPECT_EQ(Gather(second), total()) << "the directory still had the first";
  Node third = MakeNode("third");
  EXPECT_EQ(Gather(third), 0u) << "the second serves all";
}

TEST_F(ImagePeersTest, WrongBytesOfANodeAreRefusedAndComeFromTheOrigin) {
  Node first = MakeNode("first");
  Gather(first);
  for (const auto& entry : fs::directory_iterator(folder_ / "first")) {
    if (entry.file_size() < kFileBytes) continue;
    Bytes bytes = ReadFile(entry.path());
    bytes[1000] ^= 1;
    WriteFile(entry.path(), bytes);
  }
  Node second = MakeNode("second");
  EXPECT_EQ(Gather(second), total());
  EXPECT_EQ(second.peers->bytes_fetched(), first.peers->bytes_served());
  EXPECT_LT(second.peers->bytes_fetched(), 2 * kFileBytes) << "it is not asked again";
}

TEST_F(ImagePeersTest, ANodeThatSaysNothingIsGivenUp) {
  BrokenFileServer hangs;
  hangs.Hang();
  std::string address = hangs.Address("/secret");
  Node node = MakeNode("cache", std::make_unique<OnePeerBoard>(address.substr(sizeof("http://") - 1)));
  const absl::Time begun = absl::Now();
  EXPECT_EQ(Gather(node), total());
  EXPECT_LT(absl::Now() - begun, absl::Seconds(20));
}

TEST_F(ImagePeersTest, WithoutAnswersAllComesFromTheOrigin) {
  Node node = MakeNode("cache", std::make_unique<SilentBoard>());
  EXPECT_EQ(Gather(node), 0u);
  EXPECT_EQ(node.store->bytes_from_origin(), total()) << "one by one";
}

TEST_F(ImagePeersTest, WhatACacheHasAlreadyIsServedAndNotRead) {
  Node first = MakeNode("first");
  Gather(first);
  Node again = MakeNode("first");
  EXPECT_EQ(Gather(again), 0u);
  EXPECT_EQ(again.peers->bytes_fetched(), 0u);
}

TEST(PeerFiles, OnlyThoseWhoKnowTheSecretGetOnlyWhatIsOffered) {
  const TemporaryFolder folder;
  const std::string text(100'000, 'x');
  WriteFile(folder / "x", Bytes(text.begin(), text.end()));
  const PreparedFile file = {.name = "x", .bytes = text.size(), .checksum = ChecksumOf(text)};
  const auto serves = *PeerFiles::Start({});
  serves->Offer(file, folder / "x");
  FileFetch http({.silence_max = absl::Seconds(20), .give_up = absl::Seconds(20)});
  const std::string address = absl::StrCat("http://", serves->address()), name = PeerFileName(file);
  const std::string host = absl::StrCat("http://", WithoutSecret(serves->address()));
  EXPECT_EQ(*http.Get(absl::StrCat(address, "/", name), 1 << 20), text);
  for (const std::string& other :
       {host + "/", host + "/" + name, host + "/" + std::string(32, '0') + "/" + name, address, address + "/",
        address + "/x", address + "/../" + name, address + "/" + name + "/x", host + "/metrics"}) {
    EXPECT_EQ(http.Get(other, 1 << 20).status().code(), absl::StatusCode::kNotFound) << other;
  }
  const auto another = *PeerFiles::Start({});
  EXPECT_NE(another->address().substr(another->address().find('/')), address.substr(address.rfind('/')));
}

TEST(PeerFiles, WhatBrokeOffGoesOnFromThere) {
  const TemporaryFolder folder;
  std::string text(100'000, 'x');
  text += std::string(100'000, 'y');
  WriteFile(folder / "x", Bytes(text.begin(), text.end()));
  WriteFile(folder / "part", Bytes(text.begin(), text.begin() + 150'000));
  const PreparedFile file = {.name = "x", .bytes = text.size(), .checksum = ChecksumOf(text)};
  const auto serves = *PeerFiles::Start({});
  serves->Offer(file, folder / "x");
  FileFetch http({.silence_max = absl::Seconds(20), .give_up = absl::Seconds(20)});
  const std::string address = absl::StrCat("http://", serves->address(), "/", PeerFileName(file));
  EXPECT_TRUE(http.Download(address, folder / "part", file.bytes).ok());
  EXPECT_EQ(CopyText(folder / "part"), text);
  EXPECT_EQ(serves->bytes_sent(), 50'000u);
}

TEST(FileFetchTotal, ASlowTransferIsGivenUpThoughSomethingComes) {
  const TemporaryFolder folder;
  BrokenFileServer server;
  server.Hang();
  FileFetch http({.silence_max = absl::Seconds(60), .give_up = absl::Seconds(60)});
  const absl::Status status =
      http.Download(server.Address("/x"), folder / "x", 10, {.total_max = absl::Milliseconds(200)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it took too long"));
}

}  // namespace
}  // namespace slackline::images::image_peers_test
