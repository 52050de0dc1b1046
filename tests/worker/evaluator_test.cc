#include "worker/evaluation/evaluator.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/images/test_data.h"
#include "tests/worker/scripted.h"

namespace slackline::worker::evaluator_test {
namespace {

TEST(Evaluator, RemembersSoManyTrainingImages) {
  const TemporaryFolder folder;
  // Labels take turns, and no class is left out.
  Bytes labels(60);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 3);
  WriteFile(folder / "train-images-idx3-ubyte", Idx({60, 1, 1}, Bytes(60, 0)));
  WriteFile(folder / "train-labels-idx1-ubyte", Idx({60}, labels));
  const images::Dataset images = *images::Dataset::ReadIdx(folder.path(), "train");
  const auto known_to = [&](uint32_t most) {
    FixedGroup group;
    group.remembered = {99};
    Evaluator evaluator(images, {.normalisation = {},
                                 .batch_size = 7,
                                 .class_names = {"a", "b", "c"},
                                 .neighbours = &images,
                                 .neighbours_max = most});
    EXPECT_TRUE(evaluator.Evaluate(group.model(), {}, [] { return absl::OkStatus(); }).ok());
    EXPECT_THAT(group.remembered, testing::IsEmpty());
    return group.known;
  };
  const std::vector<int64_t> some = known_to(20);
  EXPECT_EQ(some.size(), 20u);
  for (const int64_t label : {0, 1, 2}) EXPECT_GT(std::count(some.begin(), some.end(), label), 2) << label;
  EXPECT_EQ(known_to(20), some);
  EXPECT_EQ(known_to(0), std::vector<int64_t>(labels.begin(), labels.end()));
  EXPECT_EQ(known_to(61).size(), 60u);
}

}  // namespace
}  // namespace slackline::worker::evaluator_test
