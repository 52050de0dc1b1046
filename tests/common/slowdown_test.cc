#include "common/base/slowdown.h"

#include <gtest/gtest.h>

namespace slackline::slowdown_test {
namespace {

TEST(Slowdown, NumberIsTheOneThatEndsTheName) {
  EXPECT_EQ(WorkerNumber("worker-3"), 3u);
  EXPECT_EQ(WorkerNumber("node7-worker-012"), 12u);
  EXPECT_EQ(WorkerNumber("5"), 5u);
  EXPECT_EQ(WorkerNumber("worker"), std::nullopt);
  EXPECT_EQ(WorkerNumber(""), std::nullopt);
  EXPECT_EQ(WorkerNumber("worker-99999999999"), std::nullopt);
}

TEST(Slowdown, OthersAreAsFastAsTheyAre) {
  job::Worker worker;
  (*worker.mutable_slowdown())[3] = 12;
  EXPECT_EQ(SlowdownOf("worker-3", worker), 12);
  EXPECT_EQ(SlowdownOf("worker-13", worker), 1);
  EXPECT_EQ(SlowdownOf("alice", worker), 1);
}

TEST(Slowdown, NumbersOfNoWorkerAreDoubted) {
  job::Job job;
  job.mutable_cluster()->set_workers(2);
  auto& slowdown = *job.mutable_worker()->mutable_slowdown();
  slowdown[1] = slowdown[2] = 12;
  EXPECT_EQ(SlowdownDoubt(job), "");
  slowdown[0] = slowdown[30] = slowdown[4] = 12;
  EXPECT_EQ(SlowdownDoubt(job),
            "worker.slowdown: found 0, 4, 30, the number of no worker; those of the job are 1 to 2 (cluster.workers), "
            "unless more join");
}

}  // namespace
}  // namespace slackline::slowdown_test
