// The simulator's small parts: time, wires, pace, plans, poison.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/job/job_file.h"
#include "simulator/event_queue.h"
#include "simulator/network.h"
#include "simulator/pace.h"
#include "simulator/poison.h"
#include "simulator/rules.h"
#include "simulator/worker_plan.h"

namespace slackline::simulator::parts_test {
namespace {

constexpr absl::Duration kMs = absl::Milliseconds(1);

absl::Time At(absl::Duration since_begin) { return absl::UnixEpoch() + since_begin; }

job::Job Job(const std::string& yaml) {
  const auto job = ParseJob(yaml, "test");
  EXPECT_TRUE(job.ok()) << job.status();
  return Resolve(*job);
}

TEST(EventQueue, EventsOfOneMomentHappenInTheOrderOfPlanning) {
  EventQueue queue;
  std::string history;
  queue.After(2 * kMs, [&] { history += "c"; });
  queue.After(kMs, [&] {
    history += "a";
    queue.After(kMs, [&] { history += "d"; });
    queue.At(At(-kMs), [&] { history += "b"; });  // the past is now
  });
  while (queue.Next()) {
  }
  EXPECT_EQ(history, "abcd");
  EXPECT_EQ(queue.Now(), At(2 * kMs));
  EXPECT_EQ(queue.happened(), 4u);
}

TEST(VirtualNetwork, TransferTakesTheWayOutTheLatencyAndTheWayIn) {
  VirtualNetwork network;
  const size_t worker = network.Add({kMs, 1e6});  // 1 ms, 1 MB/s
  const size_t fast = network.Add({kMs, 0});      // unlimited
  const size_t server = network.Add({absl::ZeroDuration(), 2e6});
  // 1000 bytes are on the worker's wire for 1 ms; they flow in while they flow out, at the slower one's pace.
  EXPECT_EQ(network.Send({worker, server, 1000}, At(0 * kMs)), At(2 * kMs));
  // A second transfer waits for the worker's wire.
  EXPECT_EQ(network.Send({worker, server, 1000}, At(0 * kMs)), At(3 * kMs));
  // From elsewhere it waits for the server's wire, which takes 0.5 ms for it.
  EXPECT_EQ(network.Send({fast, server, 1000}, At(2 * kMs)), At(3.5 * kMs));
  // The way back is another one.
  EXPECT_EQ(network.Send({server, fast, 1000}, At(2 * kMs)), At(3.5 * kMs));
  EXPECT_EQ(network.bytes(), 4000u);
  EXPECT_EQ(network.messages(), 4u);
}

TEST(Pace, StepTakesWhatItCostsTimesTheSlowdown) {
  WorkerPlan plan;
  plan.slowdown = 12;
  Pace pace(plan, {.per_sample = 2 * kMs, .per_step = 5 * kMs, .per_test_sample = kMs}, 1, 1);
  EXPECT_EQ(pace.Step({.samples = 10, .batches = 2}, At(0 * kMs)), 12 * 30 * kMs);
}

TEST(Pace, FactorsHaveMeanOneAndAreEachWorkersOwn) {
  WorkerPlan plan;
  plan.jitter = 0.5;
  Pace first(plan, {.per_sample = kMs, .per_step = 0 * kMs, .per_test_sample = kMs}, 7, 1);
  Pace again(plan, {.per_sample = kMs, .per_step = 0 * kMs, .per_test_sample = kMs}, 7, 1);
  Pace second(plan, {.per_sample = kMs, .per_step = 0 * kMs, .per_test_sample = kMs}, 7, 2);
  constexpr int kSteps = 20000;
  absl::Duration sum;
  bool differ = false;
  for (int i = 0; i < kSteps; ++i) {
    const absl::Duration step = first.Step({.samples = 1}, At(0 * kMs));
    EXPECT_EQ(step, again.Step({.samples = 1}, At(0 * kMs)));
    differ = differ || step != second.Step({.samples = 1}, At(0 * kMs));
    sum += step;
  }
  EXPECT_TRUE(differ);
  // The mean's own deviation is 0.533 / sqrt(20000) = 0.0038.
  EXPECT_NEAR(absl::FDivDuration(sum, kSteps * kMs), 1, 0.02);
}

TEST(Pace, PausesStretchTheStepsThatTheyFallInto) {
  WorkerPlan plan;
  plan.pause_every = absl::Seconds(10);
  plan.pause = absl::Seconds(5);
  Pace pace(plan, {.per_sample = absl::Seconds(1), .per_step = 0 * kMs, .per_test_sample = kMs}, 3, 1);
  absl::Time now = absl::UnixEpoch();
  int paused = 0;
  constexpr int kSteps = 10000;
  for (int i = 0; i < kSteps; ++i) {
    const absl::Duration step = pace.Step({.samples = 1}, now);
    ASSERT_GE(step, absl::Seconds(1));
    paused += step >= absl::Seconds(6);
    now += step;
  }
  // One pause in 10 s of work.
  EXPECT_NEAR(paused, kSteps / 10.0, kSteps / 100.0);
  EXPECT_NEAR(absl::ToDoubleSeconds(now - absl::UnixEpoch()), kSteps * 1.5, kSteps * 0.1);
}

TEST(WorkerPlan, ClassesTakeTheWorkersInTheirOrder) {
  const std::vector<WorkerPlan> plans = PlanWorkers(Job(R"(
cluster: {workers: 4}
worker: {slowdown: {2: 2, 4: 3}}
simulation:
  jitter: 0.1
  latency_us: 200
  worker_gbit_per_s: 8
  classes:
    - {workers: 2, slowdown: 12, jitter: 0}
    - {joins_s: 5, leaves_s: 9, returns_after_s: 2, latency_us: 1000, gbit_per_s: 0}
    - {dies_every_s: 30}
)"));
  ASSERT_EQ(plans.size(), 4u);
  EXPECT_EQ(plans[0].name, "worker-1");
  EXPECT_EQ(plans[0].slowdown, 12);
  EXPECT_EQ(plans[1].slowdown, 24) << "the class's, times what worker.slowdown makes of a real one";
  EXPECT_EQ(plans[1].jitter, 0);
  EXPECT_EQ(plans[1].joins, absl::UnixEpoch());
  EXPECT_EQ(plans[1].link.latency, absl::Microseconds(200));
  EXPECT_EQ(plans[1].link.bytes_per_second, 1e9);
  EXPECT_EQ(plans[2].slowdown, 1);
  EXPECT_EQ(plans[2].jitter, 0.1);
  EXPECT_EQ(plans[2].joins, At(absl::Seconds(5)));
  EXPECT_EQ(plans[2].leaves, At(absl::Seconds(9)));
  EXPECT_EQ(plans[2].returns_after, absl::Seconds(2));
  EXPECT_EQ(plans[2].link.latency, kMs);
  EXPECT_EQ(plans[2].link.bytes_per_second, 0);
  EXPECT_EQ(plans[2].dies_every, absl::ZeroDuration());
  EXPECT_EQ(plans[3].dies_every, absl::Seconds(30));
  EXPECT_EQ(plans[3].slowdown, 3);
  EXPECT_EQ(plans[3].leaves, absl::InfiniteFuture());
}

TEST(SimulationRules, WhatCannotBePlayedIsNamed) {
  EXPECT_TRUE(CheckSimulation(Job("")).ok());
  const auto mistake = [](const std::string& yaml) { return std::string(CheckSimulation(Job(yaml)).message()); };
  EXPECT_TRUE(CheckSimulation(Job("wire: {encoding: int8, pull_encoding: bf16}"), /*gradients=*/false).ok());
  const std::string label_free = "data: {augment: {flip: both}}\ntraining: {self_supervised: {method: ";
  EXPECT_TRUE(CheckSimulation(Job(label_free + "contrastive}}")).ok());
  EXPECT_TRUE(CheckSimulation(Job(label_free + "self_distillation}}"), /*gradients=*/false).ok());
  EXPECT_EQ(
      mistake(label_free + "self_distillation}}"),
      "training.self_supervised.method: found self_distillation; a simulation allows none and contrastive, or any "
      "with --no-gradients");
  EXPECT_FALSE(CheckSimulation(Job("wire: {groups: [{match: '*', encoding: int8}]}"), /*gradients=*/false).ok());
  EXPECT_EQ(mistake("wire: {encoding: bf16}"),
            "wire.encoding: found bf16; a simulation allows fp32, or any with --no-gradients");
  EXPECT_THAT(mistake("model: {kind: external}"),
              ::testing::HasSubstr("model.kind: found external; a simulation allows"));
  EXPECT_EQ(mistake("worker: {groups: [[cpu, cpu], [cpu]]}"), "worker.groups: found a list; a simulation allows none");
  EXPECT_EQ(mistake("worker: {precision: fp16}"),
            "worker.precision: found fp16; a simulation allows float32 or bf16, or any with --no-gradients");
  EXPECT_EQ(mistake("simulation: {evaluate_every_s: 0.0001}"),
            "simulation.evaluate_every_s: found 0.0001; a simulation allows 0, or 0.001 and more");
  EXPECT_EQ(mistake("cluster: {workers: 2}\nsimulation: {classes: [{workers: 3}]}"),
            "simulation.classes: found 3 workers; a simulation allows at most cluster.workers (2)");
  EXPECT_EQ(
      CheckSimulation(Job("simulation: {classes: [{dies_every_s: 9, leaves_s: 5}]}"), /*gradients=*/true).message(),
      "simulation.classes: found dies_every_s beside dies_s or leaves_s; a simulation allows either dies_every_s or "
      "the others");
  EXPECT_TRUE(CheckSimulation(Job("simulation: {classes: [{poison: flip}]}"), /*gradients=*/true).ok());
  EXPECT_EQ(CheckSimulation(Job("simulation: {classes: [{poison: flip}]}"), /*gradients=*/false).message(),
            "simulation.classes: found poison with --no-gradients; a simulation allows it with gradients");
  EXPECT_EQ(mistake("cluster: {workers: 1}\nsimulation: {classes: [{joins_s: 3}]}"),
            "simulation.classes: found no worker that joins at 0 s; a simulation allows at least one");
  EXPECT_EQ(mistake("simulation: {classes: [{joins_s: 3, dies_s: 2}]}"),
            "simulation.classes: found worker-1 ends before it joins; a simulation allows it later");
}

TEST(Poisoned, TrainedElementsAreWrongAndTheOthersAreNot) {
  constexpr uint64_t kTrained = 1000;
  Learned learned;
  learned.elements = kTrained + 1;
  learned.trained_elements = kTrained;
  Gradient right;
  right.push = AllocateAlignedFloats(learned.elements);
  std::fill_n(right.push.get(), learned.elements, 2.0f);
  right.norm = 2 * std::sqrt(static_cast<double>(kTrained));
  right.result.loss = 3;
  RandomStream random(1, 2, kNoise);
  const auto poisoned = [&](job::Poison::Kind kind) { return Poisoned(right, kind, learned, random); };
  const auto flipped = poisoned(job::Poison::FLIP), scaled = poisoned(job::Poison::SCALE),
             noise = poisoned(job::Poison::NOISE);
  EXPECT_EQ(flipped->push.get()[kTrained - 1], -2);
  EXPECT_EQ(flipped->norm, right.norm);
  EXPECT_EQ(scaled->push.get()[0], 20);
  EXPECT_EQ(scaled->norm, 10 * right.norm);
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kTrained; ++i) {
    sum += noise->push.get()[i];
    squares += noise->push.get()[i] * noise->push.get()[i];
  }
  EXPECT_NEAR(sum / kTrained, 0, 0.3);
  EXPECT_NEAR(std::sqrt(squares), right.norm, 0.1 * right.norm);
  for (const auto& one : {flipped, scaled, noise}) {
    EXPECT_EQ(one->push.get()[kTrained], 2);
    EXPECT_EQ(one->result.loss, 3);
  }
}

}  // namespace
}  // namespace slackline::simulator::parts_test
