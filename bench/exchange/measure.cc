#include "bench/exchange/measure.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/exchange/cluster.h"
#include "bench/exchange/data_path.h"
#include "bench/exchange/opponent.h"
#include "bench/exchange/stalled_reader.h"
#include "bench/exchange/trainer.h"
#include "bench/support/process.h"
#include "bench/support/raw_peer.h"

namespace slackline::bench {
namespace {

using Trainers = std::vector<std::unique_ptr<Trainer>>;

double CpuSecondsOf(const std::vector<pid_t>& pids) {
  double seconds = 0;
  for (const pid_t pid : pids) seconds += CpuSeconds(pid);
  return seconds;
}

std::vector<pid_t> PidsOf(const Trainers& trainers) {
  std::vector<pid_t> pids;
  for (const auto& trainer : trainers) pids.push_back(trainer->pid());
  return pids;
}

Trainers StartTrainers(const ExchangeBenchOptions& options, const Cluster& cluster) {
  const TrainerMemory memory = options.memory ? ShareTrainerMemory(options.elements()) : TrainerMemory();
  Trainers trainers;
  for (uint32_t number = 1; number <= options.members(); ++number) {
    trainers.push_back(std::make_unique<Trainer>(options, cluster, number, memory));
  }
  for (const auto& trainer : trainers) trainer->AwaitReady();
  return trainers;
}

std::vector<Outcome> DoAll(const Trainers& trainers, const Order& order) {
  for (const auto& trainer : trainers) trainer->Give(order);
  std::vector<Outcome> outcomes;
  for (const auto& trainer : trainers) outcomes.push_back(trainer->Await());
  return outcomes;
}

// Rounds of all workers together; their latencies are those of the slowest.
Row MeasureOnce(const ExchangeBenchOptions& options, const Cluster& cluster, const Trainers& trainers) {
  DoAll(trainers, {.kind = Order::Kind::kStep});  // warm
  const double worker_cpu = CpuSecondsOf(PidsOf(trainers)), server_cpu = CpuSecondsOf(cluster.pids());
  const std::vector<Outcome> outcomes = DoAll(trainers, {.seconds = options.effort.seconds});
  const double worker_used = CpuSecondsOf(PidsOf(trainers)) - worker_cpu;
  const double server_used = CpuSecondsOf(cluster.pids()) - server_cpu;
  double rounds = 0, per_s = 0, p50_us = 0, p99_us = 0;
  for (const Outcome& outcome : outcomes) {
    rounds += outcome.rounds;
    per_s += outcome.per_s();
    p50_us = std::max(p50_us, outcome.p50_us);
    p99_us = std::max(p99_us, outcome.p99_us);
  }
  // Not known for several in flight; a maximum with it is not, either.
  if (options.window > 1) p50_us = p99_us = std::numeric_limits<double>::quiet_NaN();
  const double gigabytes_a_round = 2e-9 * static_cast<double>(options.bytes());
  const double gigabytes = gigabytes_a_round * rounds;
  // What servers elsewhere have used is not known here.
  const double server_cpu_s_per_gb =
      options.connect.empty() ? server_used / gigabytes : std::numeric_limits<double>::quiet_NaN();
  return Row("exchange")
      .Add("rounds_per_s", per_s)
      .Add("gb_per_s", per_s * gigabytes_a_round)
      .Add("cpu_s_per_gb", worker_used / gigabytes + server_cpu_s_per_gb)
      .Add("worker_cpu_s_per_gb", worker_used / gigabytes)
      .Add("server_cpu_s_per_gb", server_cpu_s_per_gb)
      .Add("p50_us", p50_us)
      .Add("p99_us", p99_us);
}

// The first value of the one over the other's.
Row RatioOf(const Row& exchange, const Row& opponent) {
  return Row(exchange.what() + " / " + opponent.what())
      .Add("ratio", exchange.values().front().second / opponent.values().front().second);
}

void ReportMemory(const ExchangeBenchOptions& options, const Cluster& cluster, Report& report) {
  const double allowed_mb = 1e-6 * static_cast<double>(ResidentBytesAllowed(options));
  for (size_t server = 0; server < cluster.pids().size(); ++server) {
    const double peak_mb = 1e-6 * static_cast<double>(PeakResidentBytes(cluster.pids()[server]));
    report.Add(Row(absl::StrCat("memory of server ps-", server))
                   .Add("peak_mb", peak_mb)
                   .Add("allowed_mb", allowed_mb)
                   .Add("ratio", peak_mb / allowed_mb));
  }
}

// Each pull after one push of the other worker, so that there is something to send; only the pulls are timed.
double PullsAlonePerSecond(double seconds, Trainer& puller, Trainer& pusher) {
  double pulls = 0, pulled_s = 0;
  while (pulled_s < seconds) {
    pusher.Do({.kind = Order::Kind::kPush});
    const Outcome outcome = puller.Do({.kind = Order::Kind::kPull});
    pulls += outcome.rounds;
    pulled_s += outcome.seconds;
  }
  return pulls / pulled_s;
}

Row PullRow(const std::string& what, const ExchangeBenchOptions& options, double pulls_per_s) {
  return Row(what)
      .Add("pulls_per_s", pulls_per_s)
      .Add("gb_per_s", 1e-9 * static_cast<double>(options.bytes()) * pulls_per_s);
}

}  // namespace

void MeasureExchange(const ExchangeBenchOptions& options, Report& report) {
  const auto opponent = Opponent::Start(options);
  const Cluster cluster(options);
  const Trainers trainers = StartTrainers(options, cluster);
  std::vector<std::unique_ptr<Child>> readers;
  for (uint32_t number = 1; number <= options.stalled_readers; ++number) {
    readers.push_back(StartStalledReader(cluster, number));
  }
  for (int repeat = 0; repeat < options.effort.repeats; ++repeat) {
    const Row exchange = MeasureOnce(options, cluster, trainers);
    report.Add(exchange);
    if (opponent == nullptr) continue;
    const Row raw = opponent->Measure(options.effort.seconds);
    report.Add(raw);
    report.Add(RatioOf(exchange, raw));
  }
  if (options.memory) ReportMemory(options, cluster, report);
}

void MeasurePulls(const ExchangeBenchOptions& options, Report& report) {
  const Cluster cluster(options);
  const Trainers trainers = StartTrainers(options, cluster);
  Trainer &puller = *trainers[0], &pusher = *trainers[1];
  const double seconds = options.effort.seconds;
  for (int repeat = 0; repeat < options.effort.repeats; ++repeat) {
    const double alone = PullsAlonePerSecond(seconds, puller, pusher);
    report.Add(PullRow("pull alone", options, alone));
    pusher.Give({.kind = Order::Kind::kPush, .seconds = seconds});
    const double beside = puller.Do({.kind = Order::Kind::kPull, .seconds = seconds}).per_s();
    const Outcome pushed = pusher.Await();
    report.Add(PullRow("pull beside a pusher", options, beside));
    report.Add(Row("pull beside a pusher / pull alone").Add("ratio", beside / alone));
    report.Add(Row("the pusher").Add("rounds_per_s", pushed.per_s()));
  }
}

void MeasureBackward(const ExchangeBenchOptions& options, Report& report) {
  const Cluster cluster(options);
  const Trainers trainers = StartTrainers(options, cluster);
  const auto measure = [&](const std::string& what, Order::Kind kind) {
    double per_s = 0, p50_us = 0;
    for (const Outcome& outcome : DoAll(trainers, {.kind = kind, .seconds = options.effort.seconds})) {
      per_s += outcome.per_s();
      p50_us = std::max(p50_us, outcome.p50_us);
    }
    return Row(what)
        .Add("beyond_backward_ms", 1e-3 * p50_us - options.backward_ms)
        .Add("steps_per_s", per_s)
        .Add("p50_us", p50_us);
  };
  for (int repeat = 0; repeat < options.effort.repeats; ++repeat) {
    const Row at_once = measure("gradients leave at the end of backward", Order::Kind::kAtOnce);
    const Row layers = measure("gradients leave during backward", Order::Kind::kLayers);
    report.Add(at_once);
    report.Add(layers);
    report.Add(RatioOf(layers, at_once));
  }
}

void ServeUntilTold(const ExchangeBenchOptions& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const auto raw = RawPeer::StartTcp(options.listen);
  std::vector<std::unique_ptr<Child>> servers;
  for (uint32_t number = 1; number <= options.servers; ++number) {
    servers.push_back(StartServer(options, number));
    std::printf("exchange %s\n", InfoOf(*servers.back(), number).address.c_str());
  }
  std::printf("raw %s\nready\n", raw->address().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
}

}  // namespace slackline::bench
