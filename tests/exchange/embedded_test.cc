// Embedded workers against real servers: what a script's worker would do, without the script.
#include "worker/embedded/embedded_worker.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/exchange/cluster.h"
#include "tests/worker/scripted.h"
#include "worker/step_memory.h"

namespace slackline {
namespace {

// The scheduler's words for worker `number` of a cluster: one range after the other.
class ClusterLink : public worker::ScriptedLink {
 public:
  ClusterLink(const Cluster& cluster, uint32_t number) : cluster_(cluster), number_(number) {}
  absl::StatusOr<worker::Membership> Join() override {
    ++joins;
    return worker::Membership{.job = Cluster::kJob,
                              .worker = WorkerId(number_),
                              .incarnation = Incarnation(100 + number_),
                              .first_clock = Clock64(0),
                              .send_seed = true};
  }
  absl::StatusOr<worker::ShardMap> GetShardMap() override { return cluster_.map(); }

 private:
  const Cluster& cluster_;
  const uint32_t number_;
};

struct ScriptedScript {
  ScriptedScript(const Cluster& cluster, uint32_t number)
      : link(cluster, number),
        memory(1, cluster.map().elements, /*shared=*/true),
        parameters(cluster.map().elements, 2.0F) {
    worker::EmbeddedWorker::Options options;
    options.tensors = {{.name = "weight", .shape = {cluster.map().elements}}};
    options.train_samples = 100;
    options.timeouts = cluster.timeouts();
    worker = std::make_unique<worker::EmbeddedWorker>(
        options, worker::EmbeddedWorker::Parts{.time = time,
                                               .link = link,
                                               .metrics = trainer_metrics,
                                               .parameters = absl::MakeSpan(parameters),
                                               .push = memory.parts().front(),
                                               .push_segment = memory.segment()});
    link.work = {worker::RangeWork{.range = RangeId(number), .epoch = 0, .begin = 0, .end = 8}};
  }

  // Two steps of a gradient that is `value` everywhere; the second leaves in pieces.
  void Train(float value) {
    ASSERT_TRUE(worker->Next(false).ok());
    for (int step = 0; step < 2; ++step) {
      const absl::Span<float> push = memory.parts().front();
      std::fill(push.begin(), push.end(), value);
      if (step == 1) {
        ASSERT_TRUE(worker->Ready(push.size() / 2).ok());
        ASSERT_TRUE(worker->Ready(0).ok());
      }
      const absl::StatusOr<worker::EmbeddedStep> taken =
          worker->Step({.samples = 1, .loss = 1, .correct = 0, .compute = {}, .data_wait = {}});
      ASSERT_TRUE(taken.ok()) << taken.status();
      EXPECT_EQ(taken->outcome, worker::EmbeddedStep::Outcome::kTaken);
      EXPECT_EQ(taken->report.clock, Clock64(static_cast<uint64_t>(step + 1)));
    }
  }

  const SteadyTime time;
  Metrics metrics;
  worker::TrainerMetrics trainer_metrics{metrics};
  ClusterLink link;
  worker::StepMemory memory;
  std::vector<float> parameters;
  std::unique_ptr<worker::EmbeddedWorker> worker;
};

class EmbeddedExchange : public testing::TestWithParam<job::Consistency::Mode> {};

TEST_P(EmbeddedExchange, TwoWorkersTrainOneModel) {
  Cluster cluster({.mode = GetParam(), .path = Path::kSharedMemory});
  ScriptedScript first(cluster, 1), second(cluster, 2);
  std::thread other([&] {
    second.Train(4);
    second.worker->Leave("done");
  });
  first.Train(2);
  other.join();
  // All four pushes: as two means of two, or one by one.
  const float sum = GetParam() == job::Consistency::BSP ? 2 * 3.0F : 2 * 2.0F + 2 * 4.0F;
  EXPECT_TRUE(Eventually([&] { return cluster.version_max() == (GetParam() == job::Consistency::BSP ? 2U : 4U); }));
  first.link.work = {worker::EvaluationWork{.epoch = 1, .final = true, .run_folder = ""}};
  ASSERT_TRUE(first.worker->Next(false).ok());
  EXPECT_TRUE(AllAre(2.0F - Cluster::kLearningRate * sum, first.parameters));
  first.worker->Leave("done");
}

INSTANTIATE_TEST_SUITE_P(Modes, EmbeddedExchange,
                         testing::Values(job::Consistency::BSP, job::Consistency::SSP, job::Consistency::ASYNC),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace slackline
