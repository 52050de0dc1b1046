#include "scheduler/work/batch_sizes.h"

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler::batch_sizes_test {
namespace {

using testing::ElementsAreArray;

// Workers 1, 2, ... of these speeds; 0 is not known.
std::vector<uint32_t> SizesFor(const std::vector<double>& speeds, const BatchSizes::Config& config) {
  BatchSizes sizes(config);
  std::vector<WorkerId> live;
  for (size_t i = 0; i < speeds.size(); ++i) {
    live.push_back(WorkerId(static_cast<uint32_t>(i + 1)));
    if (speeds[i] > 0) sizes.Observe(live.back(), {.samples = static_cast<uint64_t>(10 * speeds[i]), .seconds = 10});
  }
  std::vector<uint32_t> found;
  for (const WorkerId worker : live) found.push_back(sizes.For(worker, live));
  return found;
}

struct Case {
  const char* name;
  std::vector<double> speeds;
  BatchSizes::Config config;
  std::vector<uint32_t> expected;
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class BatchSizesTable : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    , BatchSizesTable,
    testing::Values(Case{"EquallyFast", {500, 500, 500}, {64, 1, true}, {64, 64, 64}},
                    Case{"OneTwelveTimesSlower", {1200, 1200, 1200, 100}, {64, 1, true}, {83, 83, 83, 7}},
                    Case{"NoSmallerThanTheLeast", {1200, 1200, 1200, 100}, {64, 16, true}, {83, 83, 83, 16}},
                    Case{"UnknownIsAverage", {300, 0, 100}, {64, 1, true}, {96, 64, 32}},
                    Case{"NobodyIsKnown", {0, 0}, {64, 1, true}, {64, 64}}, Case{"Alone", {3}, {64, 1, true}, {64}},
                    Case{"HopelesslySlow", {1e6, 1}, {64, 1, true}, {128, 1}},
                    Case{"Fixed", {1200, 100}, {64, 1, false}, {64, 64}}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST_P(BatchSizesTable, IsInProportionToSpeed) {
  EXPECT_THAT(SizesFor(GetParam().speeds, GetParam().config), ElementsAreArray(GetParam().expected));
}

TEST(BatchSizes, SumStaysNearThatOfEqualBatches) {
  const std::vector<uint32_t> sizes = SizesFor({10, 20, 30, 40, 50, 60, 70, 80}, {64, 1, true});
  EXPECT_NEAR(std::accumulate(sizes.begin(), sizes.end(), 0), 8 * 64, 4);
}

TEST(BatchSizes, MeasurementsAreSmoothedAndNoneIsTooShort) {
  BatchSizes sizes({64, 1, true});
  const WorkerId worker(1);
  sizes.Observe(worker, {.samples = 1, .seconds = 0.1});
  EXPECT_EQ(sizes.SamplesPerSecond(worker), 0);
  sizes.Observe(worker, {.samples = 100, .seconds = 1});
  EXPECT_DOUBLE_EQ(sizes.SamplesPerSecond(worker), 100);
  sizes.Observe(worker, {.samples = 300, .seconds = 2});
  EXPECT_DOUBLE_EQ(sizes.SamplesPerSecond(worker), 130);
  sizes.Observe(worker, {.samples = 300, .seconds = 2});
  sizes.Observe(worker, {.samples = 400, .seconds = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_DOUBLE_EQ(sizes.SamplesPerSecond(worker), 130);
}

TEST(BatchSizes, ThoseThatTrainNoMoreDoNotCount) {
  BatchSizes sizes({64, 1, true});
  sizes.Observe(WorkerId(1), {.samples = 100, .seconds = 1});
  sizes.Observe(WorkerId(2), {.samples = 900, .seconds = 1});
  const std::vector<WorkerId> both = {WorkerId(1), WorkerId(2)}, one = {WorkerId(1)};
  EXPECT_EQ(sizes.For(WorkerId(1), both), 13u);
  EXPECT_EQ(sizes.For(WorkerId(1), one), 64u);
}

}  // namespace
}  // namespace slackline::scheduler::batch_sizes_test
