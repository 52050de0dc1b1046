// Versions of the weights that are kept, and the peers that keep them.
#include "ps/host/pinned_versions.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::pinned_versions_test {
namespace {

using Kind = PinnedVersions::Kind;
using Held = std::shared_ptr<const PinnedView>;

class PinnedVersionsTest : public testing::Test {
 protected:
  // Returns what the peer holds from now on; null if it waits.
  Held Pull(Kind kind, Peer& peer) {
    const Held view = pinned_.Pin(
        kind, {Version{Lineage(1), version_}, Clock64()}, [this] { return slice_.View(); },
        [](const PastState&) { return false; });
    return view == nullptr ? nullptr : pinned_.Hold(view, kind, &peer, PullId(1), absl::UnixEpoch());
  }
  std::vector<Peer*> Late(bool for_readers) const {
    std::vector<Peer*> peers;
    for (const auto& holder : pinned_.HoldersSince(absl::UnixEpoch(), for_readers).holders)
      peers.push_back(holder.peer);
    return peers;
  }

  Slice slice_{{.elements = 8, .chunk_elements = 4}};
  uint64_t version_ = 1;
  PinnedVersions pinned_{2, [] {}};
  RecordingPeer worker_, reader_, other_;
};

TEST_F(PinnedVersionsTest, OnlyReadersAreEndedForReadersThatWait) {
  const Held trains = Pull(Kind::kWorker, worker_), reads = Pull(Kind::kReader, reader_);
  ++version_;
  EXPECT_EQ(Pull(Kind::kReader, other_), nullptr);
  EXPECT_THAT(Late(/*for_readers=*/true), testing::ElementsAre(&reader_));
  EXPECT_THAT(Late(/*for_readers=*/false), testing::ElementsAre(&worker_, &reader_));
}

TEST_F(PinnedVersionsTest, ReadersOfWeightsAsideAreEndedAndNoWorkers) {
  const Held trains = Pull(Kind::kWorker, worker_);
  const auto read = [&](Peer& peer) {
    const Held view =
        pinned_.PinAside(PinnedVersions::Aside::kUnpredicted, {Lineage(1), version_}, [this] { return slice_.View(); });
    return view == nullptr ? nullptr : pinned_.Hold(view, Kind::kReader, &peer, PullId(1), absl::UnixEpoch());
  };
  const Held first = read(reader_);
  EXPECT_NE(first, trains) << "another vector";
  ++version_;
  const Held second = read(other_);
  ++version_;
  EXPECT_EQ(read(other_), nullptr);
  EXPECT_THAT(Late(/*for_readers=*/true), testing::ElementsAre(&reader_));
  pinned_.Forget(&reader_);
  EXPECT_THAT(Late(/*for_readers=*/true), testing::IsEmpty());
}

TEST_F(PinnedVersionsTest, WorkersThatHoldAllAreEndedForReadersToo) {
  const Held first = Pull(Kind::kWorker, worker_);
  ++version_;
  const Held second = Pull(Kind::kWorker, worker_);
  ++version_;
  EXPECT_EQ(Pull(Kind::kReader, reader_), nullptr);
  EXPECT_THAT(Late(/*for_readers=*/true), testing::ElementsAre(&worker_));
}

TEST_F(PinnedVersionsTest, AReaderWhoseStreamHasEndedCountsUntilItsCallIsOver) {
  Held reads = Pull(Kind::kReader, reader_);
  pinned_.Forget(&reader_);
  ++version_;
  EXPECT_EQ(Pull(Kind::kReader, other_), nullptr);
  EXPECT_THAT(Late(/*for_readers=*/true), testing::IsEmpty());
  EXPECT_NE(Pull(Kind::kWorker, worker_), nullptr);
  reads.reset();
  EXPECT_NE(Pull(Kind::kReader, other_), nullptr);
}

}  // namespace
}  // namespace slackline::ps::pinned_versions_test
