#include "images/dataset/scene_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "images/dataset/prefetcher.h"

namespace slackline::images::scene_source_test {
namespace {

using ::testing::ElementsAre;

// Image i is i + 1 pixels wide, with i objects.
class Strips final : public SceneSource {
 public:
  uint64_t size() const override { return 5; }
  absl::Status Read(uint32_t index, Scene& out) const override {
    if (index == broken) return absl::DataLossError("broken");
    out.channels = 1;
    out.height = 1;
    out.width = index + 1;
    out.pixels.assign(out.width, 0);
    out.pixels[0] = 1;
    out.boxes.clear();
    for (uint32_t i = 0; i < index; ++i) out.boxes.insert(out.boxes.end(), {0, 0, 1, 1});
    out.labels.assign(index, 1);
    out.crowd.assign(index, 0);
    out.has_masks = true;
    out.masks.assign(size_t{index} * out.width, 0);
    for (uint32_t i = 0; i < index; ++i) out.masks[size_t{i} * out.width] = 1;
    return absl::OkStatus();
  }

  uint32_t broken = 99;
};

TEST(SceneSource, AFlipTurnsPixelsBoxesAndMasks) {
  Scene scene;
  ASSERT_TRUE(Strips().Read(2, scene).ok());
  FlipScene(scene);
  EXPECT_THAT(scene.pixels, ElementsAre(0, 0, 1));
  EXPECT_THAT(scene.boxes, ElementsAre(2, 0, 3, 1, 2, 0, 3, 1));
  EXPECT_THAT(scene.masks, ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_TRUE(CheckScene(scene, 2).ok());
  FlipScene(scene);
  EXPECT_THAT(scene.boxes, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
}

TEST(SceneSource, WhatIsFlippedFollowsFromSeedEpochAndImage) {
  const Strips source;
  const std::vector<uint32_t> indices = {4, 1, 3, 2, 0, 9};
  Batch batch, again, alone;
  const Variation variation{.augment = {.flip_horizontal = true}, .seed = 3, .epoch = 1};
  ASSERT_TRUE(LoadScenes(source, indices, &variation, batch).ok());
  ASSERT_TRUE(LoadScenes(source, indices, &variation, again).ok());
  int flipped = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(batch.scenes[i].width, indices[i] % 5 + 1);
    EXPECT_EQ(batch.scenes[i].pixels, again.scenes[i].pixels);
    ASSERT_TRUE(LoadScenes(source, {indices[i]}, &variation, alone).ok());
    EXPECT_EQ(alone.scenes[0].boxes, batch.scenes[i].boxes);
    flipped += batch.scenes[i].pixels[0] == 0;
  }
  EXPECT_GT(flipped, 0);
  EXPECT_EQ(batch.size(), 6u);
  ASSERT_TRUE(LoadScenes(source, indices, nullptr, again).ok());
  for (const Scene& scene : again.scenes) EXPECT_EQ(scene.pixels[0], 1);
}

TEST(SceneSource, TheyArePrefetchedInOrderAndAnErrorEndsIt) {
  auto strips = std::make_shared<Strips>();
  const Dataset dataset = Dataset::FromScenes(strips);
  EXPECT_TRUE(dataset.has_scenes() && dataset.decoded());
  EXPECT_EQ(dataset.size(), 5u);
  Prefetcher prefetcher(dataset, {}, /*capacity=*/2, {}, /*seed=*/0, /*threads=*/2);
  prefetcher.Start({0, 1, 2, 3, 4}, 2);
  std::vector<uint32_t> widths;
  for (int i = 0; i < 3; ++i) {
    auto batch = prefetcher.Next(absl::Seconds(60));
    ASSERT_TRUE(batch.ok() && *batch != nullptr);
    for (const Scene& scene : (**batch).scenes) widths.push_back(scene.width);
    prefetcher.Recycle(*std::move(batch));
  }
  EXPECT_THAT(widths, ElementsAre(1, 2, 3, 4, 5));
  strips->broken = 1;
  prefetcher.Start({0, 1}, 2);
  EXPECT_EQ(prefetcher.Next(absl::Seconds(60)).status().message(), "broken");
}

TEST(SceneSource, WhatContradictsItselfIsNamed) {
  Scene scene;
  ASSERT_TRUE(Strips().Read(2, scene).ok());
  EXPECT_THAT(std::string(CheckScene(scene, 1).message()), ::testing::HasSubstr("label 1 of an object"));
  scene.boxes.pop_back();
  EXPECT_THAT(std::string(CheckScene(scene, 2).message()), ::testing::HasSubstr("7 numbers of boxes"));
}

}  // namespace
}  // namespace slackline::images::scene_source_test
