// Modes that make one step of several workers' pushes, with real clients. tests/cores tests the decisions.
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"

namespace slackline::modes_test {
namespace {

class QuorumClusterTest : public testing::TestWithParam<Path> {
 protected:
  QuorumClusterTest() {
    shape_.path = GetParam();
    shape_.mode = job::Consistency::QUORUM;
  }
  static void Begin(TestTrainer& trainer, const Cluster& cluster) {
    trainer.Seed(std::vector<float>(cluster.map().elements, 8));
    trainer.Pull();
  }
  static std::vector<float> Gradient(const Cluster& cluster, float value) {
    return std::vector<float>(cluster.map().elements, value);
  }

  ClusterShape shape_;
};

TEST_P(QuorumClusterTest, OneWhoIsLateGoesOnFromTheNewestWeights) {
  shape_.change = [](job::Job& job) { job.mutable_consistency()->set_quorum(0.5); };
  Cluster cluster(shape_);
  TestTrainer fast(cluster.ClientOptions(1), cluster.map()), slow(cluster.ClientOptions(2), cluster.map());
  Begin(fast, cluster);
  Begin(slow, cluster);
  fast.Step(Gradient(cluster, 2));
  fast.Step(Gradient(cluster, 2));
  slow.BeginStep(Gradient(cluster, 100));
  const worker::StepReport report = slow.FinishStep();
  EXPECT_EQ(report.shards_applied, 0u);
  EXPECT_EQ(report.shards_discarded, shape_.shards.size());
  EXPECT_TRUE(AllAre(6, slow.parameters()));
  slow.Step(Gradient(cluster, 2));
  EXPECT_TRUE(AllAre(5, slow.parameters()));
}

TEST_P(QuorumClusterTest, ADeadlineIsKeptBetweenHeartbeats) {
  shape_.heartbeat = absl::Seconds(8);
  shape_.change = [](job::Job& job) {
    job.mutable_consistency()->set_quorum(1);
    job.mutable_consistency()->set_quorum_deadline_ms(40);
  };
  Cluster cluster(shape_);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  Begin(trainer, cluster);
  const absl::Time begin = absl::Now();
  trainer.Step(Gradient(cluster, 2));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4));
  EXPECT_TRUE(AllAre(7, trainer.parameters()));
}

INSTANTIATE_TEST_SUITE_P(AllPaths, QuorumClusterTest, testing::ValuesIn(kPaths),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace slackline::modes_test
