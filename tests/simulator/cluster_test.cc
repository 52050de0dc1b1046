// Whole jobs in virtual time, with a model that is worked out by hand.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/job_file.h"
#include "common/job/job_timeouts.h"
#include "simulator/cluster.h"
#include "simulator/no_computation.h"
#include "simulator/rules.h"
#include "tests/simulator/toy_computation.h"

namespace slackline::simulator::cluster_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// One server with one shard, wires and servers that take no time; a step of 10 images takes 10 ms. An epoch has 90.
constexpr char kPlain[] = R"(
training: {epochs: 2, batch_size: 10, evaluate_every_epochs: 0}
optimizer: {lr: 0.1}
cluster: {servers: 1, workers: 1, shards_per_server: 1}
output: {report_every_ms: 50}
timeouts: {heartbeat_ms: 20}
simulation: {compute_us_per_sample: 1000, latency_us: 0, worker_gbit_per_s: 0, server_gbit_per_s: 0, server_gbyte_per_s: 0}
)";

struct History {
  std::vector<std::string> events;
  std::vector<std::string> rows;
  wire::GetStatusReply status;
  Costs costs;
  scheduler::RunSummary summary;
  std::vector<scheduler::EpochFigures> epochs;

  double seconds() const { return status.elapsed_seconds(); }
};

History Play(const std::vector<std::string>& settings, Computation& computation) {
  absl::StatusOr<job::Job> read = ParseJob(kPlain, "test", settings);
  EXPECT_TRUE(read.ok()) << read.status();
  const job::Job job = Resolve(*read);
  const absl::Status allowed = CheckSimulation(job, !computation.initial_weights().empty());
  EXPECT_TRUE(allowed.ok()) << allowed;
  History run;
  const auto note = [&](scheduler::Controller& controller, absl::Time now) {
    for (const std::string& event : controller.TakeEvents()) {
      run.events.push_back(absl::StrFormat("%.6f %s", absl::ToDoubleSeconds(now - absl::UnixEpoch()), event));
    }
    for (const scheduler::Report& report : controller.TakeReports()) {
      run.rows.push_back(absl::StrCat(report.time_s, " ", report.samples, " ", report.loss.value_or(-1), " ",
                                      report.staleness_mean, " ", report.slack, " ", report.live_workers));
    }
  };
  SimulatedCluster cluster({job, "unused", TimeoutsOf(job)}, computation, note);
  cluster.Run([] {});
  run.status = cluster.controller().GetStatus();
  run.costs = cluster.costs();
  run.summary = cluster.controller().Summary();
  run.epochs = cluster.controller().TakeEpochs().value_or(std::vector<scheduler::EpochFigures>());
  return run;
}

History Play(const std::vector<std::string>& settings) {
  ToyComputation computation;
  return Play(settings, computation);
}

std::map<std::string, uint64_t> SamplesByWorker(const History& run) {
  std::map<std::string, uint64_t> samples;
  for (const wire::MemberStatus& member : run.status.members()) {
    if (member.role() == wire::MEMBER_ROLE_WORKER) samples[member.name()] += member.samples();
  }
  return samples;
}

TEST(SimulatedJob, OneWorkerTakesItsStepsOneAfterTheOther) {
  const History run = Play({});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_EQ(run.status.step(), 180u);
  EXPECT_EQ(run.status.samples_done(), 1800u);
  // The worker hears that training has begun when it asks again, after 1 ms. Then 180 steps of 10 ms, and the last
  // evaluation: 10 images of 1/3 ms.
  EXPECT_NEAR(run.seconds(), 0.001 + 1.8 + 0.01 / 3, 1e-9);
  EXPECT_EQ(run.status.staleness_max(), 0u);
  EXPECT_GT(run.status.test_accuracy(), 0.85);
}

TEST(SimulatedJob, TrainingDoesNotBeginWithTheRestOfAHeartbeat) {
  const double often = Play({"cluster.workers=2"}).seconds();
  const double seldom = Play({"cluster.workers=2", "timeouts.heartbeat_ms=1000"}).seconds();
  EXPECT_NEAR(often, 0.9, 0.03);
  EXPECT_NEAR(seldom, often, 0.03);
}

TEST(SimulatedJob, EvaluationsMayTakeNoTime) {
  const History run = Play({"training.evaluate_every_epochs=1", "simulation.evaluation_us_per_sample=0"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_NEAR(run.seconds(), 0.001 + 1.8, 1e-9);
}

TEST(SimulatedJob, WiresAndServersTakeTheTimeThatTheirBytesTake) {
  const History run =
      Play({"simulation.latency_us=1000", "simulation.worker_gbit_per_s=0.008", "simulation.server_gbyte_per_s=0.001"});
  // 64 float32 and what a frame adds are 288 bytes; the wires and the server both move 1 byte a microsecond. A push is
  // 1 ms of latency and 0.288 ms of wire on its way, then 0.288 ms in the server's hands; so is what comes back, with
  // the answer, another 32 bytes. A step: 10 + 1 + 2 x 0.288 + 2 x 0.320 + 1 = 13.216 ms.
  const double steps = 180 * 13.216e-3;
  // The first weights and the ranges come over the wire, too.
  EXPECT_GT(run.seconds(), steps);
  EXPECT_LT(run.seconds(), steps + 0.1);
  EXPECT_EQ(run.costs.bytes_to_servers, 180 * 288u + 32u);
}

TEST(SimulatedJob, EncodingsTakeTheBytesThatTheyTake) {
  const auto play = [](const std::string& encoding, const std::string& pull_encoding) {
    NoComputation nothing(ToyComputation().learned());
    return Play(
        {"simulation.worker_gbit_per_s=0.008", "wire.encoding=" + encoding, "wire.pull_encoding=" + pull_encoding},
        nothing);
  };
  // Of 64 values; and what a frame adds, 32 bytes.
  const std::map<std::string, uint64_t> bytes = {
      {"fp32", 64 * 4}, {"bf16", 64 * 2}, {"int8", 64 + 4}, {"topk:0.1", 7 * 8}};
  const History exact = play("fp32", "fp32");
  for (const auto& [encoding, of_values] : bytes) {
    const History run = play(encoding, "fp32");
    EXPECT_EQ(run.costs.bytes_to_servers, 180 * (of_values + 32) + 32) << encoding;
    EXPECT_EQ(run.costs.bytes - run.costs.bytes_to_servers, exact.costs.bytes - exact.costs.bytes_to_servers);
    // A byte takes a microsecond.
    EXPECT_NEAR(exact.seconds() - run.seconds(), 180e-6 * static_cast<double>(256 - of_values), 1e-6) << encoding;
  }
  const History halves = play("fp32", "bf16");
  EXPECT_EQ(halves.costs.bytes_to_servers, exact.costs.bytes_to_servers);
  EXPECT_EQ(exact.costs.bytes - halves.costs.bytes, 181 * 128u) << "the first weights, too";
}

TEST(SimulatedJob, BulkSynchronousIsHeldToTheSlowWorkerAndAsynchronousAddsBoth) {
  const std::vector<std::string> slow = {"cluster.workers=2", "simulation.classes=[{slowdown: 10}]",
                                         "training.epochs=10"};
  std::vector<std::string> settings = slow;
  settings.push_back("consistency.mode=bsp");
  const History bsp = Play(settings);
  settings.back() = "consistency.mode=async";
  const History async = Play(settings);
  // 9000 samples: 20 of them every 100 ms, or 100 + 10. Towards the end one of them may be without work.
  EXPECT_NEAR(bsp.seconds(), 45, 2);
  EXPECT_NEAR(async.seconds(), 9000 / 1100.0, 0.5);
  EXPECT_NEAR(static_cast<double>(SamplesByWorker(async)["worker-2"]) / 9000, 10.0 / 11, 0.02);
  EXPECT_GT(async.status.staleness_max(), 5u);
}

TEST(SimulatedJob, StaleSynchronousKeepsTheFastOneWithinTheBound) {
  const History run = Play({"cluster.workers=2", "simulation.classes=[{slowdown: 10}]", "consistency.mode=ssp",
                            "consistency.staleness_max=3", "training.epochs=4"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE);
  EXPECT_LE(run.status.slack(), 4u);
  EXPECT_NEAR(run.seconds(), 18, 2) << "the slow one sets the pace";
}

TEST(SimulatedJob, TwoStepsInFlightHideTheWires) {
  const std::vector<std::string> far = {"simulation.latency_us=5000", "wire.window=1"};
  const History one = Play(far);
  const History two = Play({far[0], "wire.window=2"});
  EXPECT_GT(one.seconds(), 180 * 20e-3);
  // Not where a range ends: the worker then waits for its answers, and for the next range.
  EXPECT_LT(two.seconds(), 180 * 13e-3) << "10 ms of compute hide 10 ms of latency";
  EXPECT_EQ(two.status.staleness_max(), 1u);
}

TEST(SimulatedJob, EveryModeLearnsAndLosesNoSample) {
  for (const char* mode : {"async", "ssp", "bsp", "softsync", "quorum"}) {
    SCOPED_TRACE(mode);
    const History run = Play({absl::StrCat("consistency.mode=", mode), "cluster.workers=5", "cluster.servers=2",
                              "cluster.shards_per_server=2", "simulation.jitter=0.4", "training.epochs=6",
                              "simulation.classes=[{workers: 1, slowdown: 3}]", "simulation.latency_us=300"});
    EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
    EXPECT_EQ(run.status.samples_done(), 6 * ToyComputation::kImages);
    EXPECT_GT(run.status.test_accuracy(), 0.8);
  }
}

TEST(SimulatedJob, OneSeedGivesOneHistory) {
  const std::vector<std::string> settings = {
      "cluster.workers=6",      "cluster.servers=2", "simulation.jitter=0.5",
      "consistency.mode=async", "training.epochs=3", "simulation.classes=[{dies_s: 0.3, returns_after_s: 0.2}]"};
  const History first = Play(settings);
  const History second = Play(settings);
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.rows, second.rows);
  EXPECT_EQ(first.status.SerializeAsString(), second.status.SerializeAsString());
  std::vector<std::string> other = settings;
  other.push_back("seed=2");
  EXPECT_NE(Play(other).rows, first.rows);
}

TEST(SimulatedJob, DeathOfAWorkerCostsItsRangeAndNoSample) {
  const History run = Play({"cluster.workers=3", "training.epochs=20", "timeouts.heartbeat_ms=20",
                            "consistency.mode=bsp", "simulation.classes=[{dies_s: 1}]"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_THAT(run.events, Contains(HasSubstr("worker-1 is dead")));
  EXPECT_THAT(run.events, Contains(HasSubstr("samples that worker-1 held go to others")));
  EXPECT_EQ(run.status.samples_done(), 20 * ToyComputation::kImages);
  // 3 workers for 1 s, then 2, and 16 T = 0.32 s of silence in between.
  EXPECT_NEAR(run.seconds(), 1 + 0.32 + (18000 - 3000) / 2000.0, 0.5);
}

TEST(SimulatedJob, WorkersDieTimeAndAgain) {
  const auto deaths = [](const History& run, const std::string& worker) {
    return std::count_if(run.events.begin(), run.events.end(), [&](const std::string& event) {
      return event.find(worker + " is dead") != std::string::npos ||
             event.find(worker + " is back") != std::string::npos;
    });
  };
  const std::vector<std::string> settings = {
      "cluster.workers=4", "training.epochs=20", "timeouts.heartbeat_ms=20", "consistency.mode=async",
      "simulation.classes=[{workers: 2, dies_every_s: 1, returns_after_s: 0.5}, {dies_every_s: 1}]"};
  const History run = Play(settings);
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_EQ(run.status.samples_done(), 20 * ToyComputation::kImages);
  EXPECT_GT(deaths(run, "worker-1"), 1) << ::testing::PrintToString(run.events);
  EXPECT_GT(deaths(run, "worker-2"), 1);
  EXPECT_EQ(deaths(run, "worker-3"), 1) << "which does not return";
  EXPECT_EQ(deaths(run, "worker-4"), 0);
  EXPECT_EQ(Play(settings).events, run.events);
}

TEST(SimulatedJob, WorkersLeaveReturnAndJoinLate) {
  const History run = Play({"cluster.workers=3", "training.epochs=10", "consistency.mode=async",
                            "simulation.classes=[{leaves_s: 0.5, returns_after_s: 1}, {joins_s: 2}]"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_THAT(run.events, Contains(HasSubstr("training begins with 2 workers")));
  EXPECT_THAT(run.events, Contains(HasSubstr("worker-1 leaves: told to stop")));
  EXPECT_GT(SamplesByWorker(run)["worker-2"], 500u) << "the one that joined late";
  EXPECT_EQ(run.status.samples_done(), 10 * ToyComputation::kImages);
}

// What the toy's first weight is in the end.
float LastWeight(const std::vector<std::string>& settings) {
  ToyComputation computation;
  const History run = Play(settings, computation);
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  return computation.last_weight();
}

TEST(SimulatedJob, RoundsOfOneLocalStepAreBulkSynchronousTraining) {
  const std::vector<std::string> both = {"cluster.workers=3", "consistency.mode=bsp", "training.epochs=1"};
  std::vector<std::string> local = both;
  local.insert(local.end(), {"local.steps=1", "local.lr=0.1", "optimizer.lr=1"});
  const float weight = LastWeight(both);
  EXPECT_NE(weight, 1);
  EXPECT_NEAR(LastWeight(local), weight, 1e-6);
}

TEST(SimulatedJob, LocalRoundsPushOnceForAllTheirSteps) {
  for (const char* mode : {"async", "ssp", "bsp", "softsync", "quorum"}) {
    SCOPED_TRACE(mode);
    ToyComputation computation;
    const History run = Play({absl::StrCat("consistency.mode=", mode), "cluster.workers=3", "simulation.jitter=0.4",
                              "training.epochs=4", "optimizer.lr=1", "local={steps: 5, lr: 0.05}"},
                             computation);
    EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
    EXPECT_EQ(run.status.samples_done(), 4 * ToyComputation::kImages);
    EXPECT_EQ(run.status.step(), 4 * ToyComputation::kImages / 50) << "batches of 10";
    uint64_t pushed_bytes = 0;
    for (const scheduler::WorkerSummary& worker : run.summary.worker_list) pushed_bytes += worker.totals.pushed_bytes();
    EXPECT_EQ(pushed_bytes, run.status.step() * ToyComputation::kElements * sizeof(float));
    EXPECT_THAT(computation.batches(), ::testing::Each(50));
    EXPECT_NEAR(computation.last_weight(), 1, 0.15);
  }
}

TEST(SimulatedJob, LocalEpochsGoOverTheWorkersTaskSoManyTimes) {
  ToyComputation computation;
  const History run = Play({"cluster.workers=3", "consistency.mode=bsp", "training.epochs=2", "optimizer.lr=1",
                            "local={epochs: 4, lr: 0.05}"},
                           computation);
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_THAT(computation.batches(), ::testing::ElementsAreArray(std::vector<uint64_t>(6, 1200)))
      << "a third of 900 images, four times";
  EXPECT_EQ(run.status.samples_done(), 2 * ToyComputation::kImages);
  EXPECT_EQ(run.status.samples_total(), 2 * ToyComputation::kImages);
  EXPECT_NEAR(run.seconds(), 2 * 1.2, 0.1);
  EXPECT_NEAR(computation.last_weight(), 1, 0.05);
}

TEST(SimulatedJob, LocalSubsetsAreAnothersOfTheirSize) {
  ToyComputation computation;
  const History run = Play({"cluster.workers=3", "consistency.mode=async", "training.epochs=1", "optimizer.lr=0.5",
                            "local={epochs: 2, subset_samples: 100}"},
                           computation);
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_THAT(computation.batches(), ::testing::ElementsAreArray(std::vector<uint64_t>(9, 200)));
}

TEST(SimulatedJob, OutliersAreKeptOutInEveryModeAndCounted) {
  for (const char* mode : {"async", "ssp", "bsp", "softsync", "quorum"}) {
    SCOPED_TRACE(mode);
    // The first rounds are the longest, and most of the run goes on at the end of them; a factor of 1.01 keeps out
    // many.
    ToyComputation computation;
    const History run =
        Play({absl::StrCat("consistency.mode=", mode), "cluster.workers=3", "simulation.jitter=0.4",
              "training.epochs=4", "optimizer.lr=1", "local={steps: 3, lr: 0.05, outlier_factor: 1.01}"},
             computation);
    EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
    EXPECT_EQ(run.status.samples_done(), 4 * ToyComputation::kImages);
    uint64_t quarantined = 0, discarded = 0;
    for (const scheduler::WorkerSummary& worker : run.summary.worker_list) {
      quarantined += worker.totals.pushes_quarantined();
      discarded += worker.totals.pushes_discarded();
    }
    EXPECT_GT(quarantined, 10u);
    EXPECT_GE(discarded, quarantined);
    EXPECT_LT(quarantined, run.status.step());
  }
}

TEST(SimulatedJob, RobustAggregationLearnsDespitePoisonedWorkers) {
  // 18 steps.
  const auto accuracy = [](const std::string& poison, const std::string& aggregation) {
    return Play({"consistency={mode: bsp, weighting: uniform}", "cluster.workers=5", "training.epochs=1",
                 "optimizer.lr=0.5", "consistency.aggregation=" + aggregation,
                 absl::StrCat("simulation.classes=[{workers: 2, poison: ", poison, "}]"),
                 aggregation == "trimmed_mean" ? "consistency.trim=0.4" : "seed=1"})
        .status.test_accuracy();
  };
  for (const char* const poison : {"flip", "scale", "noise"}) {
    for (const char* const aggregation : {"median", "trimmed_mean"}) {
      EXPECT_GT(accuracy(poison, aggregation), 0.75) << poison << " " << aggregation;
    }
  }
  // The mean is a fifth of what it should be, and 4.6 times that. Noise only makes it a little shorter.
  EXPECT_GT(accuracy("none", "mean"), 0.85);
  EXPECT_LT(accuracy("flip", "mean"), 0.65);
  EXPECT_LT(accuracy("scale", "mean"), 0.1);
}

TEST(SimulatedJob, TaskOfAWorkerThatDiedGoesToAnotherWhenItsLeaseIsOver) {
  const std::vector<std::string> settings = {
      "cluster.workers=2", "consistency.mode=async",        "training.epochs=2",
      "optimizer.lr=0.5",  "local={steps: 10, lease_s: 5}", "simulation.classes=[{dies_s: 0.25}]"};
  const History run = Play(settings);
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_EQ(run.status.samples_done(), 2 * ToyComputation::kImages);
  // Its third round began at 0.22 s.
  EXPECT_THAT(run.events, Contains(HasSubstr("its lease is over")));
  EXPECT_GT(run.seconds(), 5.2);
  EXPECT_LT(run.seconds(), 5.5);
}

TEST(SimulatedJob, LongRoundOfShortBatchesIsNoStall) {
  const History run =
      Play({"cluster.workers=2", "consistency.mode=async", "training.epochs=2", "optimizer.lr=0.5",
            "local={steps: 45, lr: 0.05}", "simulation.compute_us_per_sample=200000", "simulation.jitter=0"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_GT(run.seconds(), 90);
  EXPECT_FALSE(absl::StrContains(absl::StrJoin(run.events, "\n"), "made no step")) << absl::StrJoin(run.events, "\n");
}

TEST(SimulatedJob, LongStepIsNoStall) {
  const History run =
      Play({"training.epochs=1", "simulation.compute_us_per_sample=12000000", "simulation.evaluation_us_per_sample=0",
            "simulation.jitter=0", "timeouts.heartbeat_ms=300"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_NEAR(run.seconds(), 900 * 12, 10) << "90 steps of two minutes";
  EXPECT_FALSE(absl::StrContains(absl::StrJoin(run.events, "\n"), "made no step"));
}

TEST(SimulatedJob, StepBeyondAnyPatienceEndsTheJobWithTheSetting) {
  const History run = Play({"training.epochs=1", "simulation.compute_us_per_sample=12000000",
                            "timeouts.heartbeat_ms=300", "timeouts.stall_ms=1000"});
  EXPECT_EQ(run.status.state(), wire::JOB_FAILED);
  EXPECT_THAT(run.status.reason(), HasSubstr("worker-1 was expelled 3 times in a row, and nothing was trained"));
  EXPECT_THAT(run.status.reason(), HasSubstr("set timeouts.stall_ms: 4"));
  EXPECT_LT(run.seconds(), 100);
}

TEST(SimulatedJob, LongEvaluationIsNoStall) {
  const History run = Play({"cluster.workers=2", "consistency.mode=async", "training.epochs=2",
                            "simulation.evaluation_us_per_sample=20000000"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_GT(run.seconds(), 200);
  EXPECT_LT(run.seconds(), 500);
  EXPECT_FALSE(absl::StrContains(absl::StrJoin(run.events, "\n"), "made no step"));
}

TEST(SimulatedJob, ExpelledInAPauseItJoinsAgainWhenThatIsOver) {
  const History run = Play({"cluster.workers=3", "consistency.mode=async", "training.epochs=40",
                            "simulation.classes=[{pause_every_s: 1, pause_s: 100}]"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  const std::string events = absl::StrJoin(run.events, "\n");
  EXPECT_TRUE(absl::StrContains(events, "made no step")) << events;
  int lives = 0;
  for (const std::string& event : run.events) lives += absl::StrContains(event, "worker-1 is live");
  EXPECT_LE(lives, 1 + static_cast<int>(run.seconds() / 100)) << events;
}

TEST(SimulatedJob, SilentPauseIsADeathUnlessTheLeaseIsLonger) {
  for (const int lease : {0, 100}) {
    SCOPED_TRACE(lease);
    const History run = Play({"cluster.workers=3", "consistency.mode=async", "training.epochs=40", "optimizer.lr=0.3",
                              absl::StrCat("local={steps: 10, lease_s: ", lease, "}"),
                              "simulation.classes=[{pause_every_s: 1, pause_s: 30, pause_silent: true}]"});
    EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
    EXPECT_EQ(run.status.samples_done(), 40 * ToyComputation::kImages);
    const std::string events = absl::StrJoin(run.events, "\n");
    EXPECT_EQ(absl::StrContains(events, "is dead"), lease == 0) << events;
    // The others have gone on in any case; what it was away with has waited for it.
    EXPECT_EQ(run.seconds() > 29, lease > 0) << run.seconds();
  }
}

TEST(SimulatedJob, InnerStateFollowsItsWorker) {
  const std::vector<std::string> settings = {"cluster.workers=1", "consistency.mode=bsp", "training.epochs=1",
                                             "optimizer.lr=1"};
  const auto with = [&](const std::string& local) {
    std::vector<std::string> all = settings;
    all.push_back(local);
    return LastWeight(all);
  };
  // With one worker and lr 1 rounds are nothing but a way to cut one run: with the state kept it is the same run.
  const float whole = with("local={steps: 90, optimizer: adam, lr: 0.02}");
  EXPECT_NEAR(with("local={steps: 9, optimizer: adam, lr: 0.02}"), whole, 1e-5);
  EXPECT_GT(std::abs(with("local={steps: 9, optimizer: adam, lr: 0.02, keep_state: never}") - whole), 1e-3);
  const float momentum = with("local={steps: 90, lr: 0.002, momentum: 0.9}");
  EXPECT_NEAR(with("local={steps: 9, lr: 0.002, momentum: 0.9, keep_state: always}"), momentum, 1e-5);
  EXPECT_GT(std::abs(with("local={steps: 9, lr: 0.002, momentum: 0.9}") - momentum), 1e-3);
}

TEST(SimulatedJob, GradientThatIsNoNumberEndsTheJobAndNamesTheWorker) {
  ToyComputation computation;
  computation.FailAfter(7);
  const History run = Play({}, computation);
  EXPECT_EQ(run.status.state(), wire::JOB_FAILED);
  EXPECT_EQ(run.status.reason(), "worker-1, step 8: the loss is nan");
}

// 4,000 images, 8 workers and 3 epochs: two seconds of work would be a large part of an epoch.
TEST(SimulatedJob, EqualWorkersEndTogether) {
  for (const char* mode : {"async", "ssp", "bsp"}) {
    SCOPED_TRACE(mode);
    Learned learned = ToyComputation().learned();
    learned.train_samples = 4000;
    NoComputation nothing(learned);
    const History run = Play({absl::StrCat("consistency.mode=", mode), "cluster.workers=8", "training.epochs=3",
                              "training.batch_size=32", "simulation.compute_us_per_sample=10000"},
                             nothing);
    EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
    // Seconds of virtual time stand before each event. Events are told at ticks, which are 10 ms apart.
    double first = 1e9, begun = 0;
    for (const std::string& event : run.events) {
      const double at = std::stod(event);
      if (absl::StrContains(event, "training begins")) begun = at;
      if (absl::StrContains(event, "stands by")) first = std::min(first, at);
    }
    const double batch = 0.32;
    EXPECT_LE(begun + run.summary.train_s - first, 1.5 * batch - 0.02);
    const double ideal = 3 * 4000 * 0.01 / 8;
    EXPECT_LT(run.summary.train_s, 1.1 * ideal);
  }
}

// The same without a computation, with one worker that is away for a while: its range ends long after the epoch.
TEST(SimulatedJob, EpochsEndByTheSamplesThatAreTrained) {
  Learned learned = ToyComputation().learned();
  learned.train_samples = 4000;
  NoComputation nothing(learned);
  const History run = Play({"consistency.mode=async", "cluster.workers=8", "training.epochs=3",
                            "training.batch_size=32", "simulation.classes=[{pause_every_s: 0.3, pause_s: 0.3}]"},
                           nothing);
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  ASSERT_EQ(run.epochs.size(), 3u);
  for (const scheduler::EpochFigures& epoch : run.epochs) {
    EXPECT_GE(epoch.samples, epoch.epoch * 4000u);
    // What eight workers tell at once.
    EXPECT_LE(epoch.samples, epoch.epoch * 4000u + 8 * 32u);
  }
}

TEST(SimulatedJob, SamplesOfDiscardedPushesAreTrainedAndNotApplied) {
  const History run = Play({"consistency.mode=quorum", "consistency.quorum=0.6", "cluster.workers=5",
                            "training.epochs=6", "simulation.jitter=0.4"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  const state::Totals& totals = run.summary.totals;
  EXPECT_EQ(totals.samples(), 6 * ToyComputation::kImages);
  EXPECT_GT(totals.pushes_discarded(), 0u);
  EXPECT_EQ(totals.samples_applied(), totals.pushes_applied() * 10) << "one shard, and batches of 10";
  ASSERT_EQ(run.epochs.size(), 6u) << "an epoch is a pass over the data";
  EXPECT_LT(run.epochs.back().samples_applied, run.epochs.back().samples);
}

TEST(SimulatedJob, EvaluatesOnAGridOfSamples) {
  const History run = Play({"consistency.mode=async", "cluster.workers=4", "training.epochs=4",
                            "training.evaluate_every_samples=450", "simulation.evaluation_us_per_sample=0"});
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  ASSERT_EQ(run.summary.evaluations.size(), 8u) << "seven on the way, and the last";
  for (size_t i = 0; i + 1 < run.summary.evaluations.size(); ++i) {
    const uint64_t point = (i + 1) * 450;
    EXPECT_GE(run.summary.evaluations[i].samples_applied, point);
    EXPECT_LE(run.summary.evaluations[i].samples_applied, point + 4 * 10) << "a batch of each worker";
  }
}

TEST(SimulatedJob, EvaluatesOnAGridOfVirtualTimeAndHoldsNobody) {
  const std::vector<std::string> settings = {"consistency.mode=async", "cluster.workers=3", "training.epochs=4"};
  std::vector<std::string> observed = settings;
  observed.push_back("simulation.evaluate_every_s=0.25");
  const History without = Play(settings), run = Play(observed);
  EXPECT_EQ(run.status.state(), wire::JOB_DONE) << run.status.reason();
  EXPECT_EQ(run.seconds(), without.seconds());
  EXPECT_EQ(run.status.step(), without.status.step());
  // 3600 images in 1.2 s: four, and that of the end.
  ASSERT_EQ(run.summary.evaluations.size(), 5u);
  for (size_t i = 0; i < 4; ++i) {
    const scheduler::EvaluationSummary& one = run.summary.evaluations[i];
    EXPECT_NEAR(one.time_s, 0.25 * static_cast<double>(i + 1), 1e-9);
    // Each trains 10 images in 10 ms.
    EXPECT_NEAR(static_cast<double>(one.samples_applied), 3 * one.time_s * 1000, 60);
    EXPECT_GT(one.accuracy, 0.8);
  }
}

TEST(SimulatedJob, WeightsThatAreTheSameAreMeasuredOnce) {
  // A step of 10 images takes 10 ms.
  const History run = Play({"training.epochs=1", "simulation.evaluate_every_s=0.002"});
  std::set<uint64_t> applied;
  for (const scheduler::EvaluationSummary& one : run.summary.evaluations) applied.insert(one.samples_applied);
  EXPECT_EQ(applied.size(), 91u);                  // before the first of 90 steps, and after each
  EXPECT_LE(run.summary.evaluations.size(), 92u);  // the end has one of its own
}

TEST(SimulatedJob, EndlessRunIsEndedAtItsTime) {
  const History run = Play({"simulation.time_max_s=1", "training.epochs=1000"});
  EXPECT_EQ(run.status.state(), wire::JOB_FAILED);
  EXPECT_THAT(run.status.reason(), HasSubstr("simulation.time_max_s"));
}

TEST(SimulatedJob, ProtocolAloneTakesTheSameTime) {
  NoComputation nothing(ToyComputation().learned());
  const std::vector<std::string> settings = {"cluster.workers=4", "consistency.mode=bsp", "simulation.jitter=0.3"};
  const History with = Play(settings);
  const History without = Play(settings, nothing);
  EXPECT_EQ(with.seconds(), without.seconds());
  EXPECT_EQ(with.costs.bytes, without.costs.bytes);
}

}  // namespace
}  // namespace slackline::simulator::cluster_test
