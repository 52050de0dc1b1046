#include "ps/shard/slice.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/shm/segment.h"

namespace slackline::ps::slice_test {
namespace {

void Fill(Slice& slice, float value) {
  slice.Update([&](uint64_t, absl::Span<float> values) { std::fill(values.begin(), values.end(), value); });
}

std::vector<float> Values(const SliceView& view) {
  std::vector<float> values(view.elements());
  view.CopyTo(absl::MakeSpan(values));
  return values;
}

// Where the chunks of a test's slices lie.
enum class Place { kHeap, kSegment, kSegmentWithRoomForOne };

std::shared_ptr<shm::Segment> MakeSegment(uint64_t bytes) {
  absl::StatusOr<std::unique_ptr<shm::Segment>> segment = shm::Segment::Create({.name = "slice_test", .bytes = bytes});
  EXPECT_TRUE(segment.ok()) << segment.status();
  return *std::move(segment);
}

// The same promises hold wherever the chunks lie, and when some lie here and some there.
class SliceTest : public ::testing::TestWithParam<Place> {
 protected:
  static Slice Make(const SliceShape& shape) {
    if (GetParam() == Place::kHeap || shape.elements == 0) return Slice(shape);
    const uint64_t bytes = Slice::SegmentBytes(shape, 3);
    return Slice(shape, {.segment = MakeSegment(GetParam() == Place::kSegment ? bytes : 1)});
  }
};

std::string PlaceName(const ::testing::TestParamInfo<Place>& place) {
  switch (place.param) {
    case Place::kHeap:
      return "Heap";
    case Place::kSegment:
      return "Segment";
    case Place::kSegmentWithRoomForOne:
      return "SegmentWithRoomForOne";
  }
  return "Unknown";
}

INSTANTIATE_TEST_SUITE_P(Places, SliceTest,
                         ::testing::Values(Place::kHeap, Place::kSegment, Place::kSegmentWithRoomForOne), PlaceName);

TEST_P(SliceTest, BlocksCoverEveryElementOnceInOrder) {
  for (const uint64_t elements : {1, 15, 16, 17, 4096, 10007}) {
    for (const uint64_t chunk_elements : {1, 16, 5000, 20000}) {
      Slice slice = Make({.elements = elements, .chunk_elements = chunk_elements});
      uint64_t next = 0;
      slice.Update([&](uint64_t begin, absl::Span<float> values) {
        EXPECT_EQ(begin, next);
        EXPECT_LE(values.size(), Slice::kBlockElements);
        std::iota(values.begin(), values.end(), static_cast<float>(begin));
        next += values.size();
      });
      EXPECT_EQ(next, elements);
      const std::vector<float> values = Values(slice.View());
      for (uint64_t i = 0; i < elements; ++i) ASSERT_EQ(values[i], static_cast<float>(i));
    }
  }
}

TEST_P(SliceTest, BeginsWithZeros) {
  EXPECT_EQ(Values(Make({.elements = 5, .chunk_elements = 2}).View()), std::vector<float>(5, 0));
}

TEST_P(SliceTest, ChunksAreAlignedAndTheLastMayBePartial) {
  Slice slice = Make({.elements = 40, .chunk_elements = 16});
  const SliceView view = slice.View();
  ASSERT_EQ(view.chunks(), 3u);
  EXPECT_EQ(view.chunk(1).size(), 16u);
  EXPECT_EQ(view.chunk(2).size(), 8u);
  for (size_t i = 0; i < view.chunks(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.chunk(i).data()) % 64, 0u);
  }
}

TEST_P(SliceTest, OfNoElementsHasNoChunks) {
  Slice slice = Make({.elements = 0, .chunk_elements = 16});
  slice.Update([](uint64_t, absl::Span<float>) { ADD_FAILURE() << "there is no element to change"; });
  EXPECT_EQ(slice.View().chunks(), 0u);
  EXPECT_EQ(SliceView().chunks(), 0u);
}

TEST_P(SliceTest, UpdateWithoutViewsWritesInPlace) {
  Slice slice = Make({.elements = 40, .chunk_elements = 16});
  const float* before = slice.View().chunk(0).data();
  Fill(slice, 1);
  EXPECT_EQ(slice.View().chunk(0).data(), before);
  EXPECT_EQ(slice.chunks_copied(), 0u);
}

TEST_P(SliceTest, ViewKeepsItsValuesWhileTheSliceMovesOn) {
  Slice slice = Make({.elements = 40, .chunk_elements = 16});
  Fill(slice, 1);
  const SliceView one = slice.View();
  Fill(slice, 2);
  const SliceView two = slice.View();
  Fill(slice, 3);
  EXPECT_EQ(Values(one), std::vector<float>(40, 1));
  EXPECT_EQ(Values(two), std::vector<float>(40, 2));
  EXPECT_EQ(Values(slice.View()), std::vector<float>(40, 3));
  EXPECT_EQ(slice.chunks_copied(), 6u);
}

TEST_P(SliceTest, UpdateSeesTheOldValuesInAFreshBuffer) {
  Slice slice = Make({.elements = 10000, .chunk_elements = 6000});
  Fill(slice, 5);
  const SliceView held = slice.View();
  slice.Update([](uint64_t, absl::Span<float> values) {
    for (float& value : values) value += 1;
  });
  EXPECT_EQ(Values(slice.View()), std::vector<float>(10000, 6));
}

TEST_P(SliceTest, OnlyHeldChunksAreCopied) {
  Slice slice = Make({.elements = 40, .chunk_elements = 16});
  const ChunkRef middle = slice.View().reference(1);
  Fill(slice, 1);
  EXPECT_EQ(slice.chunks_copied(), 1u);
  EXPECT_EQ(middle.values()[0], 0);
}

TEST_P(SliceTest, BuffersOfReleasedViewsAreUsedAgain) {
  Slice slice = Make({.elements = 16, .chunk_elements = 16});
  std::optional<SliceView> held = slice.View();
  const float* first = held->chunk(0).data();
  Fill(slice, 1);
  held = slice.View();  // the first buffer is free now
  Fill(slice, 2);
  EXPECT_EQ(slice.View().chunk(0).data(), first);
}

TEST_P(SliceTest, ViewOutlivesTheSlice) {
  SliceView view;
  {
    Slice slice = Make({.elements = 40, .chunk_elements = 16});
    Fill(slice, 7);
    view = slice.View();
  }
  EXPECT_EQ(Values(view), std::vector<float>(40, 7));
}

TEST(ChunkPool, KeepsNoMoreFreeBuffersThanItMay) {
  const auto pool = std::make_shared<ChunkPool>(ChunkPoolOptions{.chunk_elements = 16, .free_max = 2});
  { const std::vector<ChunkRef> taken = {pool->Take(), pool->Take(), pool->Take()}; }
  EXPECT_EQ(pool->free_buffers(), 2u);
}

// The count alone tells the owner that it may write again; TSan sees it when the count orders nothing.
TEST(ChunkRef, IsExclusiveOnlyAfterTheOthersReads) {
  const auto pool = std::make_shared<ChunkPool>(ChunkPoolOptions{.chunk_elements = 16, .free_max = 1});
  ChunkRef own = pool->TakeZeroed();
  std::thread reader([held = own]() mutable {
    EXPECT_EQ(held.values()[0], 0);
    held = ChunkRef();
  });
  while (!own.Exclusive()) std::this_thread::yield();
  own.mutable_values()[0] = 1;
  reader.join();
}

TEST_P(SliceTest, ReadersOnOtherThreadsNeverSeeAMixture) {
  constexpr int kVersions = 300;
  Slice slice = Make({.elements = 5000, .chunk_elements = 512});
  std::atomic<SliceView*> handed = nullptr;
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done.load()) {
      const std::unique_ptr<SliceView> view(handed.exchange(nullptr));
      if (view == nullptr) continue;
      const std::vector<float> values = Values(*view);
      EXPECT_EQ(values, std::vector<float>(values.size(), values[0]));
    }
  });
  for (int version = 1; version <= kVersions; ++version) {
    Fill(slice, static_cast<float>(version));
    delete handed.exchange(new SliceView(slice.View()));
  }
  done.store(true);
  reader.join();
  delete handed.load();
}

// Bytes of a page, in elements: chunks in a segment are at least that far apart.
const uint64_t kPageElements = shm::PageBytes() / sizeof(float);

TEST(SliceSegment, OffsetsTellWhereOthersReadTheChunks) {
  const SliceShape shape{.elements = 3 * kPageElements, .chunk_elements = kPageElements + 1};
  EXPECT_EQ(Slice::SegmentBytes(shape, 2), 2u * 3u * 2u * shm::PageBytes()) << "two versions of three chunks";
  const auto segment = MakeSegment(Slice::SegmentBytes(shape, 2));
  const absl::StatusOr<std::unique_ptr<shm::MappedSegment>> reader =
      shm::MappedSegment::Map(shm::Descriptor(::fcntl(segment->descriptor()->get(), F_DUPFD_CLOEXEC, 0)),
                              {.bytes_min = segment->bytes(), .bytes_max = segment->bytes()});
  ASSERT_TRUE(reader.ok()) << reader.status();
  Slice slice(shape, {.segment = segment});
  const SliceView zeros = slice.View();
  slice.Update([](uint64_t begin, absl::Span<float> values) {
    std::iota(values.begin(), values.end(), static_cast<float>(begin));
  });
  const SliceView view = slice.View();
  std::set<uint64_t> offsets;
  for (size_t i = 0; i < view.chunks(); ++i) {
    ASSERT_TRUE(view.chunk_offset(i).has_value());
    EXPECT_EQ(*view.chunk_offset(i) % shm::PageBytes(), 0u);
    offsets.insert({*view.chunk_offset(i), *zeros.chunk_offset(i)});
    const auto* there = reinterpret_cast<const float*>((*reader)->data() + *view.chunk_offset(i));
    EXPECT_EQ(absl::MakeConstSpan(there, view.chunk(i).size()), view.chunk(i));
    EXPECT_EQ(there[0], static_cast<float>(i * shape.chunk_elements));
  }
  EXPECT_EQ(offsets.size(), 6u) << "no two chunks share a place";
}

TEST(SliceSegment, ChunksOnTheHeapHaveNoOffset) {
  Slice slice({.elements = 40, .chunk_elements = 16});
  EXPECT_EQ(slice.View().chunk_offset(0), std::nullopt);
}

TEST(SliceSegment, AnExhaustedSegmentIsUsedAgainWhenThereIsRoom) {
  const SliceShape shape{.elements = 32, .chunk_elements = 16};
  Slice slice(shape, {.segment = MakeSegment(Slice::SegmentBytes(shape, 1))});
  const auto in_segment = [&](size_t index) { return slice.View().chunk_offset(index).has_value(); };
  std::optional<SliceView> held = slice.View();
  Fill(slice, 1);
  EXPECT_FALSE(in_segment(0) || in_segment(1));
  EXPECT_EQ(Values(*held), std::vector<float>(32, 0));
  EXPECT_EQ(Values(slice.View()), std::vector<float>(32, 1));

  held = slice.View();  // the first version's places are free now
  Fill(slice, 2);
  EXPECT_TRUE(in_segment(0) && in_segment(1));
  EXPECT_EQ(Values(*held), std::vector<float>(32, 1));
  EXPECT_EQ(Values(slice.View()), std::vector<float>(32, 2));
}

TEST(SliceSegment, MemoryOfAsManyVersionsAsToldIsKept) {
  const SliceShape shape{.elements = 4 * kPageElements, .chunk_elements = kPageElements};
  const uint64_t version_bytes = Slice::SegmentBytes(shape, 1);
  for (const size_t kept : {0, 1, 2}) {
    const auto segment = MakeSegment(3 * version_bytes);
    Slice slice(shape, {.segment = segment, .versions_kept = kept});
    std::optional<SliceView> first = slice.View();
    Fill(slice, 1);
    std::optional<SliceView> second = slice.View();
    Fill(slice, 2);
    EXPECT_EQ(segment->resident_bytes(), 3 * version_bytes);
    first.reset();
    second.reset();
    EXPECT_EQ(segment->resident_bytes(), (1 + kept) * version_bytes);
    EXPECT_EQ(Values(slice.View()), std::vector<float>(shape.elements, 2));
  }
}

TEST(ChunkPool, MemoryOfChunksThatAreNotKeptGoesBackToTheSystem) {
  const uint64_t elements = kPageElements + 1;  // two pages each
  const auto segment = MakeSegment(3 * ChunkPool::Stride(elements));
  const auto pool =
      std::make_shared<ChunkPool>(ChunkPoolOptions{.chunk_elements = elements, .free_max = 1, .segment = segment});
  EXPECT_EQ(segment->resident_bytes(), 0u);
  for (int round = 0; round < 3; ++round) {
    std::vector<ChunkRef> taken;
    std::set<std::optional<uint64_t>> offsets;
    for (int i = 0; i < 3; ++i) offsets.insert(taken.emplace_back(pool->TakeZeroed()).segment_offset());
    EXPECT_EQ(offsets.size(), 3u);
    EXPECT_EQ(offsets.count(std::nullopt), 0u) << "places stay usable";
    EXPECT_EQ(segment->resident_bytes(), 6 * shm::PageBytes());
    EXPECT_EQ(pool->Take().segment_offset(), std::nullopt) << "there are but three";
    taken.clear();
    EXPECT_EQ(pool->free_buffers(), 1u);
    EXPECT_EQ(segment->resident_bytes(), 2 * shm::PageBytes());
  }
}

// A place that is released while somebody else already writes there would lose what he wrote.
TEST(ChunkPool, ChunksThatComeBackOnManyThreadsNeverLoseValues) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  const auto segment = MakeSegment(2 * shm::PageBytes());
  const auto pool =
      std::make_shared<ChunkPool>(ChunkPoolOptions{.chunk_elements = kPageElements, .free_max = 0, .segment = segment});
  std::vector<std::thread> threads;
  for (int id = 1; id <= kThreads; ++id) {
    threads.emplace_back([&, value = static_cast<float>(id)] {
      for (int round = 0; round < kRounds; ++round) {
        ChunkRef chunk = pool->Take();
        std::fill_n(chunk.mutable_values(), kPageElements, value);
        std::this_thread::yield();
        ASSERT_EQ(std::count(chunk.values(), chunk.values() + kPageElements, value), int64_t(kPageElements));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(segment->resident_bytes(), 0u);
}

}  // namespace
}  // namespace slackline::ps::slice_test
