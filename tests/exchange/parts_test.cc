// Elements that are trained in groups, averaged, and frozen, with real clients; and the weights' exponential average.
#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"

namespace slackline::parts_test {
namespace {

constexpr float kEma = 0.5F;

// Shards of 3000 trained elements, of 2000 of each kind, of 40 frozen ones, and of 9000 frozen ones.
class PartsTest : public testing::TestWithParam<Path> {
 protected:
  PartsTest() {
    shape_.path = GetParam();
    shape_.shards = {3000, 6000, 40, 9000};
    shape_.servers = 2;
    shape_.workers = 1;
    shape_.averaged = 2000;
    shape_.frozen = 11040;
    shape_.groups = {{100, 110}, {2500, 4000}};
    shape_.change = [](job::Job& job) {
      job.mutable_optimizer()->add_groups()->set_lr_factor(4);
      job.mutable_optimizer()->add_groups()->set_lr_factor(0);
      job.mutable_optimizer()->set_ema(kEma);
    };
  }

  // Weights after a step on `gradient`; of a single worker, averaged elements become what was pushed.
  std::vector<float> Stepped(std::vector<float> weights, absl::Span<const float> gradient) const {
    for (size_t i = 0; i < 7000; ++i) {
      const float factor = i >= 100 && i < 110 ? 4.0F : i >= 2500 && i < 4000 ? 0.0F : 1.0F;
      weights[i] = i < 5000 ? weights[i] - factor * Cluster::kLearningRate * gradient[i] : gradient[i];
    }
    return weights;
  }
  static void Average(absl::Span<const float> weights, std::vector<float>& average) {
    for (size_t i = 0; i < weights.size(); ++i) average[i] += (1 - kEma) * (weights[i] - average[i]);
  }
  static absl::StatusOr<std::vector<float>> Read(const Cluster& cluster, bool averaged, bool reader = true) {
    worker::ClientOptions options = cluster.ClientOptions(9);
    options.reader = reader;
    options.averaged = averaged;
    auto client = worker::Client::Create(options, cluster.map());
    std::vector<float> weights(cluster.map().elements);
    const absl::Status pulled = (*client)->Pull(absl::MakeSpan(weights), absl::Seconds(20));
    if (!pulled.ok()) return pulled;
    return weights;
  }

  ClusterShape shape_;
};

TEST_P(PartsTest, EachElementGoesTheWayOfItsPart) {
  shape_.window = 2;  // weights arrive in turns in two places, of which each must have what is frozen
  Cluster cluster(shape_);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  std::mt19937 random(PrintedSeed());
  std::vector<float> weights = RandomValues(cluster.map().elements, random);
  std::vector<float> average = weights;
  trainer.Seed(weights);
  trainer.Pull();
  ASSERT_EQ(*Read(cluster, true), weights);
  for (int step = 0; step < 4; ++step) {
    const std::vector<float> gradient = RandomValues(weights.size(), random);
    trainer.BeginStep(gradient);
    const worker::StepReport report = trainer.FinishStep();
    EXPECT_EQ(report.pushed_bytes, 7000 * sizeof(float));
    EXPECT_EQ(report.pulled_bytes, (step > 0 ? 7000 : 7000 + weights.size()) * sizeof(float));
    weights = Stepped(weights, gradient);
    Average(weights, average);
    ASSERT_TRUE(absl::c_equal(trainer.parameters(), weights));
    ASSERT_EQ(*Read(cluster, true), average);
    ASSERT_EQ(*Read(cluster, false), weights);
  }
}

TEST_P(PartsTest, AllPartsMoveToAnotherServer) {
  Cluster cluster(shape_);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  std::mt19937 random(PrintedSeed());
  std::vector<float> weights = RandomValues(cluster.map().elements, random);
  std::vector<float> average = weights;
  trainer.Seed(weights);
  trainer.Pull();
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      cluster.MoveShards(1, 0, {1, 3});
      trainer.client().Remap(cluster.map());
      trainer.Pull();  // a gradient of the lineage before would be discarded
      ASSERT_TRUE(absl::c_equal(trainer.parameters(), weights));
    }
    const std::vector<float> gradient = RandomValues(weights.size(), random);
    trainer.Step(gradient);
    weights = Stepped(weights, gradient);
    Average(weights, average);
    ASSERT_TRUE(absl::c_equal(trainer.parameters(), weights));
  }
  ASSERT_EQ(*Read(cluster, true), average);
}

TEST_P(PartsTest, AveragesAreForReadersOfJobsThatKeepThem) {
  shape_.workers = 2;
  {
    Cluster cluster(shape_);
    TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
    trainer.Seed(std::vector<float>(cluster.map().elements, 1));
    worker::ClientOptions options = cluster.ClientOptions(2);
    options.averaged = true;
    auto worker = worker::Client::Create(options, cluster.map());
    std::vector<float> weights(cluster.map().elements);
    const absl::Status refused = (*worker)->Pull(absl::MakeSpan(weights), absl::Seconds(20));
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("only readers may have them"));
  }
  shape_.change = nullptr;
  shape_.groups = {};
  Cluster cluster(shape_);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  trainer.Seed(std::vector<float>(cluster.map().elements, 1));
  EXPECT_THAT(std::string(Read(cluster, true).status().message()), testing::HasSubstr("optimizer.ema"));
}

INSTANTIATE_TEST_SUITE_P(AllPaths, PartsTest, testing::ValuesIn(kPaths),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace slackline::parts_test
