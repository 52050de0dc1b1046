#include "scheduler/watch/divergence_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler::divergence_guard_test {
namespace {

using testing::HasSubstr;
using testing::Optional;

DivergenceGuard::Seen Loss(double mean, uint64_t samples = 100) {
  return {.samples = samples, .samples_with_loss = samples, .loss_sum = mean * static_cast<double>(samples)};
}
DivergenceGuard::Seen Norm(double norm) { return {.samples = 1, .gradient_norm_max = norm}; }

TEST(DivergenceGuard, WithoutLimitsEverythingIsAllowed) {
  DivergenceGuard guard({});
  EXPECT_FALSE(guard.Observe(Loss(1e30)));
  EXPECT_FALSE(guard.Observe(Norm(1e30)));
}

TEST(DivergenceGuard, LossBeyondItsLimitIsSaidOnceUntilItIsWithinAgain) {
  DivergenceGuard guard({.loss_max = 3});
  EXPECT_FALSE(guard.Observe(Loss(3)));
  EXPECT_THAT(guard.Observe(Loss(3.5)), Optional(HasSubstr("the mean loss is 3.5, guard.loss_max is 3")));
  EXPECT_FALSE(guard.Observe(Loss(4)));
  EXPECT_FALSE(guard.Observe(Loss(2)));
  EXPECT_TRUE(guard.Observe(Loss(4)));
}

TEST(DivergenceGuard, LossIsComparedWithTheSmallestSoFar) {
  DivergenceGuard guard({.loss_factor = 2});
  for (const double mean : {8.0, 4.0, 2.0, 3.9}) EXPECT_FALSE(guard.Observe(Loss(mean))) << mean;
  EXPECT_THAT(guard.Observe(Loss(4.2)), Optional(HasSubstr("2.1 times the smallest one (2); guard.loss_factor is 2")));
}

TEST(DivergenceGuard, MeansAreOfAWholeWindow) {
  DivergenceGuard guard({.loss_max = 3, .window_samples = 100});
  EXPECT_FALSE(guard.Observe(Loss(9, 25)));  // unlucky batches
  EXPECT_FALSE(guard.Observe(Loss(1, 75)));
  EXPECT_FALSE(guard.Observe(Loss(9, 50)));
  EXPECT_TRUE(guard.Observe(Loss(9, 50)));
}

TEST(DivergenceGuard, OneLargeGradientIsEnough) {
  DivergenceGuard guard({.gradient_norm_max = 10, .window_samples = 1000});
  EXPECT_FALSE(guard.Observe(Norm(10)));
  EXPECT_THAT(guard.Observe(Norm(25)), Optional(HasSubstr("norm 25, guard.gradient_norm_max is 10")));
  EXPECT_FALSE(guard.Observe(Norm(25)));
  EXPECT_FALSE(guard.Observe({}));  // nothing was trained: still outside
  EXPECT_FALSE(guard.Observe(Norm(25)));
  EXPECT_FALSE(guard.Observe(Norm(5)));
  EXPECT_TRUE(guard.Observe(Norm(25)));
}

}  // namespace
}  // namespace slackline::scheduler::divergence_guard_test
