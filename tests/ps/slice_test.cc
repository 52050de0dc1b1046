#include "ps/slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

namespace slackline::ps {
namespace {

void Fill(Slice& slice, float value) {
  slice.Update([&](uint64_t, absl::Span<float> values) { std::fill(values.begin(), values.end(), value); });
}

std::vector<float> Values(const SliceView& view) {
  std::vector<float> values(view.elements());
  view.CopyTo(absl::MakeSpan(values));
  return values;
}

TEST(Slice, BlocksCoverEveryElementOnceInOrder) {
  for (const uint64_t elements : {1, 15, 16, 17, 4096, 10007}) {
    for (const uint64_t chunk_elements : {1, 16, 5000, 20000}) {
      Slice slice({.elements = elements, .chunk_elements = chunk_elements});
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

TEST(Slice, BeginsWithZeros) {
  EXPECT_EQ(Values(Slice({.elements = 5, .chunk_elements = 2}).View()), std::vector<float>(5, 0));
}

TEST(Slice, ChunksAreAlignedAndTheLastMayBePartial) {
  Slice slice({.elements = 40, .chunk_elements = 16});
  const SliceView view = slice.View();
  ASSERT_EQ(view.chunks(), 3u);
  EXPECT_EQ(view.chunk(1).size(), 16u);
  EXPECT_EQ(view.chunk(2).size(), 8u);
  for (size_t i = 0; i < view.chunks(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.chunk(i).data()) % 64, 0u);
  }
}

TEST(Slice, OfNoElementsHasNoChunks) {
  Slice slice({.elements = 0, .chunk_elements = 16});
  slice.Update([](uint64_t, absl::Span<float>) { ADD_FAILURE() << "there is no element to change"; });
  EXPECT_EQ(slice.View().chunks(), 0u);
  EXPECT_EQ(SliceView().chunks(), 0u);
}

TEST(Slice, UpdateWithoutViewsWritesInPlace) {
  Slice slice({.elements = 40, .chunk_elements = 16});
  const float* before = slice.View().chunk(0).data();
  Fill(slice, 1);
  EXPECT_EQ(slice.View().chunk(0).data(), before);
  EXPECT_EQ(slice.chunks_copied(), 0u);
}

TEST(Slice, ViewKeepsItsValuesWhileTheSliceMovesOn) {
  Slice slice({.elements = 40, .chunk_elements = 16});
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

TEST(Slice, UpdateSeesTheOldValuesInAFreshBuffer) {
  Slice slice({.elements = 10000, .chunk_elements = 6000});
  Fill(slice, 5);
  const SliceView held = slice.View();
  slice.Update([](uint64_t, absl::Span<float> values) {
    for (float& value : values) value += 1;
  });
  EXPECT_EQ(Values(slice.View()), std::vector<float>(10000, 6));
}

TEST(Slice, OnlyHeldChunksAreCopied) {
  Slice slice({.elements = 40, .chunk_elements = 16});
  const ChunkRef middle = slice.View().reference(1);
  Fill(slice, 1);
  EXPECT_EQ(slice.chunks_copied(), 1u);
  EXPECT_EQ(middle.values()[0], 0);
}

TEST(Slice, BuffersOfReleasedViewsAreUsedAgain) {
  Slice slice({.elements = 16, .chunk_elements = 16});
  std::optional<SliceView> held = slice.View();
  const float* first = held->chunk(0).data();
  Fill(slice, 1);
  held = slice.View();  // the first buffer is free now
  Fill(slice, 2);
  EXPECT_EQ(slice.View().chunk(0).data(), first);
}

TEST(Slice, ViewOutlivesTheSlice) {
  SliceView view;
  {
    Slice slice({.elements = 40, .chunk_elements = 16});
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

TEST(Slice, ReadersOnOtherThreadsNeverSeeAMixture) {
  constexpr int kVersions = 300;
  Slice slice({.elements = 5000, .chunk_elements = 512});
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

}  // namespace
}  // namespace slackline::ps
