// faulty_peers: what good workers lose to peers that stall, hold connections half open, flood a server, or never read.
// Each kind in turns with the same workers alone.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/exchange/cluster.h"
#include "bench/exchange/faulty_peer.h"
#include "bench/exchange/trainer.h"
#include "bench/support/command_line.h"
#include "bench/support/report.h"

namespace slackline::bench {
namespace {

struct Options {
  ExchangeBenchOptions exchange;
  uint32_t peers = 4;
  std::string kind;  // part of a name; empty: all
};

// Rounds of all workers together.
double RoundsPerSecond(const std::vector<std::unique_ptr<Trainer>>& trainers, double seconds) {
  for (const auto& trainer : trainers) trainer->Give({.seconds = seconds});
  double per_s = 0;
  for (const auto& trainer : trainers) per_s += trainer->Await().per_s();
  return per_s;
}

void Measure(const Options& options, Report& report) {
  const Cluster cluster(options.exchange);
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (uint32_t number = 1; number <= options.exchange.workers; ++number) {
    trainers.push_back(std::make_unique<Trainer>(options.exchange, cluster, number, TrainerMemory()));
  }
  for (const auto& trainer : trainers) trainer->AwaitReady();
  const double seconds = options.exchange.effort.seconds;
  RoundsPerSecond(trainers, 0);  // warm
  for (int repeat = 0; repeat < options.exchange.effort.repeats; ++repeat) {
    for (const Fault fault : kFaults) {
      if (!absl::StrContains(Name(fault), options.kind)) continue;
      const double alone = RoundsPerSecond(trainers, seconds);
      const auto peers = StartFaultyPeers(fault, cluster, options.peers);
      const double beside = RoundsPerSecond(trainers, seconds);
      report.Add(Row(absl::StrCat("beside ", Name(fault)))
                     .Add("ratio", beside / alone)
                     .Add("rounds_per_s", beside)
                     .Add("alone_rounds_per_s", alone));
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  options.exchange.megabytes = 20;
  options.exchange.workers = 2;
  options.exchange.transport = "tcp";
  CLI::App app("Good workers beside peers that do wrong, in turns with the same workers alone.", "faulty_peers");
  app.add_option("--megabytes", options.exchange.megabytes, "Size of the model, 10^6 bytes of float32")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e5));
  app.add_option("--workers", options.exchange.workers, "Good workers")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--peers", options.peers, "Faulty peers of each server, of one kind at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--kind", options.kind, "Only the kinds whose names contain this");
  AddDataPath(app, options.exchange);
  AddEffort(app, options.exchange.effort);
  if (const auto exit_code = Parse(app, argc, argv)) return *exit_code;
  Report report(options.exchange.effort.json);
  Measure(options, report);
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }
