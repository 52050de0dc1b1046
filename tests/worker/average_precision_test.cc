#include "worker/evaluation/average_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include <nlohmann/json.hpp>
#include "worker/evaluation/evaluation.h"

namespace slackline::worker::average_precision_test {
namespace {

using ::testing::ElementsAre;
using Table = std::vector<std::vector<double>>;  // overlaps, by what was found and by what is there

// One class, 0, on one image.
std::vector<ClassPrecision> Measure(const std::vector<float>& scores, const Table& overlaps,
                                    const std::vector<uint8_t>& crowd) {
  AveragePrecision precision(1);
  const std::vector<int64_t> truth(crowd.size()), found(scores.size());
  precision.Add({.truth = truth, .crowd = crowd, .found = found, .scores = scores},
                [&](const AveragePrecision::Pair& pair) { return overlaps[pair.found][pair.truth]; });
  return precision.Classes();
}

TEST(AveragePrecision, BoxesOverlapByTheirAreas) {
  const std::vector<float> box = {0, 0, 4, 2}, other = {2, 1, 6, 3}, inside = {1, 0, 3, 2}, far = {9, 9, 10, 10};
  EXPECT_DOUBLE_EQ(BoxOverlap(box, other, false), 2.0 / 14);
  EXPECT_DOUBLE_EQ(BoxOverlap(box, box, false), 1);
  EXPECT_DOUBLE_EQ(BoxOverlap(inside, box, false), 0.5);
  EXPECT_DOUBLE_EQ(BoxOverlap(inside, box, true), 1);
  EXPECT_DOUBLE_EQ(BoxOverlap(box, far, false), 0);
  const std::vector<float> nothing = {1, 1, 1, 1}, inverted = {3, 3, 1, 1};
  EXPECT_DOUBLE_EQ(BoxOverlap(nothing, nothing, false), 0);
  EXPECT_DOUBLE_EQ(BoxOverlap(inverted, box, true), 0);
}

TEST(AveragePrecision, MasksOverlapByTheirPixels) {
  const std::vector<uint8_t> mask = {1, 1, 0, 0}, other = {0, 1, 1, 1}, none(4);
  EXPECT_DOUBLE_EQ(MaskOverlap(mask, other, false), 0.25);
  EXPECT_DOUBLE_EQ(MaskOverlap(mask, other, true), 0.5);
  EXPECT_DOUBLE_EQ(MaskOverlap(none, none, false), 0);
}

// One of two is found, and then something else: precision 1 at recalls 0 to 0.5, which are 51 of 101.
TEST(AveragePrecision, AMissAndAFalseAlarmCostTheirPart) {
  const auto classes = Measure({0.9f, 0.8f}, {{0.72, 0.1}, {0.1, 0.2}}, {0, 0});
  EXPECT_EQ(classes[0].objects, 2u);
  EXPECT_EQ(classes[0].found, 2u);
  EXPECT_DOUBLE_EQ(classes[0].ap_50, 51.0 / 101);
  // 0.72 is a hit at 0.5, 0.55, 0.6, 0.65 and 0.7.
  EXPECT_DOUBLE_EQ(classes[0].ap, 0.5 * 51.0 / 101);
  EXPECT_EQ(classes[0].kept, 2u);
  EXPECT_EQ(classes[0].hits, 1u);
}

// A false alarm with the better score: precision 1/2 at recall 1/2, and 2/3 at 1, which counts before it, too.
TEST(AveragePrecision, PrecisionIsTheBestThatIsReachedWithThatRecall) {
  const auto classes = Measure({0.7f, 0.9f, 0.4f}, {{1, 0}, {0, 0}, {0, 1}}, {0, 0});
  EXPECT_NEAR(classes[0].ap_50, 2.0 / 3, 1e-12);
  EXPECT_EQ(classes[0].kept, 2u);  // 0.4 is below the score that counts
  EXPECT_EQ(classes[0].hits, 1u);
}

TEST(AveragePrecision, AnObjectIsFoundOnceByTheBestScore) {
  const auto classes = Measure({0.8f, 0.9f}, {{1}, {0.6}}, {0});
  // At 0.5 the better score takes it, and the other is false, behind full recall; at 0.65 and more it is the other way.
  EXPECT_DOUBLE_EQ(classes[0].ap_50, 1);
  EXPECT_NEAR(classes[0].ap, (3 * 1 + 7 * 0.5) / 10, 1e-12);
}

TEST(AveragePrecision, WhatLiesOnACrowdCountsAsNothing) {
  const auto classes = Measure({0.9f, 0.8f, 0.7f}, {{0.1, 0.9}, {0.2, 0.9}, {1, 0.9}}, {0, 1});
  EXPECT_EQ(classes[0].objects, 1u);
  EXPECT_DOUBLE_EQ(classes[0].ap_50, 1);
  EXPECT_EQ(classes[0].kept, 1u);
}

TEST(AveragePrecision, NoMoreThanAHundredOfAClassAndAnImageAreLookedAt) {
  std::vector<float> scores(101, 0.9f);
  scores[100] = 0.1f;
  Table overlaps(101, std::vector<double>{0});
  overlaps[100] = {1};
  EXPECT_EQ(Measure(scores, overlaps, {0})[0].ap_50, 0);
  scores[100] = 0.95f;
  EXPECT_EQ(Measure(scores, overlaps, {0})[0].ap_50, 1);
}

TEST(AveragePrecision, ClassesWithoutObjectsAreNotInTheMean) {
  AveragePrecision precision(3);
  const std::vector<int64_t> truth = {1}, found = {1, 2};
  const std::vector<float> scores = {0.9f, 0.9f};
  precision.Add({.truth = truth, .crowd = {}, .found = found, .scores = scores},
                [](const AveragePrecision::Pair&) { return 0.8; });
  const MeanPrecision mean = MeanOf(precision.Classes());
  EXPECT_DOUBLE_EQ(mean.map_50, 1);
  EXPECT_NEAR(mean.map, 0.7, 1e-12);  // 0.5, 0.55 ... 0.8
  EXPECT_EQ(MeanOf({}).map, 0);

  const EvaluationMetrics metrics = MetricsOfObjects(4, precision, nullptr);
  EXPECT_EQ(metrics.samples, 4u);
  EXPECT_EQ(metrics.accuracy, mean.map);
  EXPECT_THAT(metrics.objects->labels, ElementsAre(1, 2));
  EXPECT_FALSE(metrics.objects->masks);
  EXPECT_EQ(metrics.classes[0].f1, 1);
  EXPECT_EQ(metrics.classes[1].precision, 0);
  EXPECT_DOUBLE_EQ(metrics.precision_macro, 0.5);
  EXPECT_DOUBLE_EQ(metrics.f1_micro, 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.f1_weighted, 1);
}

// COCO's boxes are left, top, width, height.
std::vector<float> BoxOf(const nlohmann::json& entry) {
  const auto box = entry.at("bbox").get<std::vector<float>>();
  return {box[0], box[1], box[0] + box[2], box[1] + box[3]};
}

TEST(AveragePrecision, FiguresEqualThoseOfPycocotools) {
  const auto golden = nlohmann::json::parse(std::ifstream(SLACKLINE_TEST_FOLDER "/coco_golden.json")).at("evaluation");
  AveragePrecision precision(4);
  for (int image = 0; image < 12; ++image) {
    std::vector<int64_t> truth, found;
    std::vector<uint8_t> crowd;
    std::vector<float> scores;
    std::vector<std::vector<float>> truth_boxes, found_boxes;
    for (const auto& entry : golden.at("truth")) {
      if (entry.at("image_id") != image) continue;
      truth.push_back(entry.at("category_id"));
      crowd.push_back(entry.at("iscrowd"));
      truth_boxes.push_back(BoxOf(entry));
    }
    for (const auto& entry : golden.at("found")) {
      if (entry.at("image_id") != image) continue;
      found.push_back(entry.at("category_id"));
      scores.push_back(entry.at("score"));
      found_boxes.push_back(BoxOf(entry));
    }
    precision.Add({.truth = truth, .crowd = crowd, .found = found, .scores = scores},
                  [&](const AveragePrecision::Pair& pair) {
                    return BoxOverlap(found_boxes[pair.found], truth_boxes[pair.truth], crowd[pair.truth] != 0);
                  });
  }
  const std::vector<ClassPrecision> classes = precision.Classes();
  EXPECT_NEAR(MeanOf(classes).map, golden.at("map").get<double>(), 1e-9);
  EXPECT_NEAR(MeanOf(classes).map_50, golden.at("map_50").get<double>(), 1e-9);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(classes[i + 1].ap, golden.at("ap")[i].get<double>(), 1e-9) << i;
}

}  // namespace
}  // namespace slackline::worker::average_precision_test
