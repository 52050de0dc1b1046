// Embedded workers against real servers: they do what a script's worker would do, without the script.
#include "worker/embedded/embedded_worker.h"

#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/exchange/cluster.h"
#include "tests/worker/scripted.h"
#include "worker/base/step_memory.h"

namespace slackline::embedded_test {
namespace {

// The scheduler's words for worker `number` of a cluster: one range after the other.
class ClusterLink : public worker::ScriptedLink {
 public:
  ClusterLink(const Cluster& cluster, uint32_t number) : cluster_(cluster), number_(number) {}
  absl::StatusOr<worker::WorkerMembership> Join() override {
    ++joins;
    return worker::WorkerMembership{.job = Cluster::kJob,
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
  ScriptedScript(const Cluster& cluster, uint32_t number, uint32_t window)
      : link(cluster, number),
        memory(window, cluster.map().elements, /*shared=*/true),
        parameters(window, cluster.map().elements, /*shared=*/false) {
    std::fill(parameters.parts().front().begin(), parameters.parts().front().end(), 2.0F);
    worker::EmbeddedWorker::Options options;
    options.tensors = {{.name = "weight", .shape = {cluster.map().elements}}};
    options.train_samples = 100;
    options.timeouts = cluster.timeouts();
    options.window = window;
    worker = std::make_unique<worker::EmbeddedWorker>(options,
                                                      worker::EmbeddedWorker::Parts{.time = time,
                                                                                    .link = link,
                                                                                    .metrics = trainer_metrics,
                                                                                    .parameters = parameters.parts(),
                                                                                    .push = memory.parts(),
                                                                                    .push_segment = memory.segment()});
    link.work = {worker::RangeWork{.range = RangeId(number), .epoch = 0, .begin = 0, .end = 8}};
  }

  // Two steps of a gradient that is `value` everywhere; the second leaves in pieces.
  void Train(float value) {
    ASSERT_TRUE(worker->Next(false).ok());
    for (int step = 0; step < 2; ++step) {
      const absl::Span<float> push = worker->push();
      std::fill(push.begin(), push.end(), value);
      if (step == 1) {
        ASSERT_TRUE(worker->Ready(push.size() / 2).ok());
        ASSERT_TRUE(worker->Ready(0).ok());
      }
      const absl::StatusOr<worker::EmbeddedStep> taken =
          worker->Step({.samples = 1, .loss = 1, .correct = 0, .compute = {}, .data_wait = {}});
      ASSERT_TRUE(taken.ok()) << taken.status();
      EXPECT_EQ(taken->outcome, worker::EmbeddedStep::Outcome::kTaken);
    }
  }

  const SteadyTime time;
  Metrics metrics;
  worker::TrainerMetrics trainer_metrics{metrics};
  ClusterLink link;
  worker::StepMemory memory;
  worker::StepMemory parameters;
  std::unique_ptr<worker::EmbeddedWorker> worker;
};

class EmbeddedExchange : public testing::TestWithParam<std::tuple<job::Consistency::Mode, uint32_t>> {};

TEST_P(EmbeddedExchange, TwoWorkersTrainOneModel) {
  ClusterShape shape;
  std::tie(shape.mode, shape.window) = GetParam();
  const auto [mode, window] = GetParam();
  Cluster cluster(shape);
  ScriptedScript first(cluster, 1, window), second(cluster, 2, window);
  std::thread other([&] {
    second.Train(4);
    second.worker->Leave("done");
  });
  first.Train(2);
  other.join();
  if (window == 1) {
    EXPECT_EQ(first.worker->view().clock, Clock64(2));
  }
  // All four pushes: as two means of two, or one by one.
  const float sum = mode == job::Consistency::BSP ? 2 * 3.0F : 2 * 2.0F + 2 * 4.0F;
  const uint64_t versions = mode == job::Consistency::BSP ? 2 : 4;
  EXPECT_TRUE(Eventually([&] { return cluster.version_max() == versions; }));
  first.link.work = {worker::EvaluationWork{.epoch = 1, .final = true, .run_folder = ""}};
  ASSERT_TRUE(first.worker->Next(false).ok());
  EXPECT_EQ(first.worker->view().clock, Clock64(2));
  EXPECT_TRUE(AllAre(2.0F - Cluster::kLearningRate * sum, first.worker->parameters()));
  first.worker->Leave("done");
}

INSTANTIATE_TEST_SUITE_P(Modes, EmbeddedExchange,
                         testing::Combine(testing::Values(job::Consistency::BSP, job::Consistency::SSP,
                                                          job::Consistency::ASYNC),
                                          testing::Values(1, 3)),
                         [](const auto& info) {
                           return Name(std::get<0>(info.param)) + "_window_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace slackline::embedded_test
