// replication_bench: rounds of push + apply + pull on servers with backups, in turns with the same on servers without.
#include <memory>
#include <vector>

#include "bench/exchange/cluster.h"
#include "bench/exchange/trainer.h"
#include "bench/support/command_line.h"
#include "bench/support/report.h"

namespace slackline::bench {
namespace {

// One cluster and its trainers.
class Side {
 public:
  explicit Side(const ExchangeBenchOptions& options) : cluster_(options) {
    for (uint32_t number = 1; number <= options.workers; ++number) {
      trainers_.push_back(std::make_unique<Trainer>(options, cluster_, number, TrainerMemory()));
    }
    for (const auto& trainer : trainers_) trainer->AwaitReady();
  }

  // Rounds of all workers together, and the longest of their 99th percentiles.
  Outcome Run(double seconds) {
    for (const auto& trainer : trainers_) trainer->Give({.seconds = seconds});
    Outcome all = {.rounds = 0, .seconds = 1, .p50_us = 0, .p99_us = 0};
    for (const auto& trainer : trainers_) {
      const Outcome one = trainer->Await();
      all.rounds += one.per_s();
      all.p50_us = std::max(all.p50_us, one.p50_us);
      all.p99_us = std::max(all.p99_us, one.p99_us);
    }
    return all;
  }

 private:
  const Cluster cluster_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

void Measure(const ExchangeBenchOptions& options, Report& report) {
  ExchangeBenchOptions replicated = options;
  replicated.replicated = true;
  Side without(options);
  Side with(replicated);
  without.Run(0);  // warm
  with.Run(0);
  for (int repeat = 0; repeat < options.effort.repeats; ++repeat) {
    const Outcome alone = without.Run(options.effort.seconds);
    const Outcome backed = with.Run(options.effort.seconds);
    report.Add(Row("replicated")
                   .Add("ratio", backed.per_s() / alone.per_s())
                   .Add("rounds_per_s", backed.per_s())
                   .Add("alone_rounds_per_s", alone.per_s())
                   .Add("p50_us", backed.p50_us)
                   .Add("p99_us", backed.p99_us));
  }
}

int Main(int argc, char** argv) {
  ExchangeBenchOptions options;
  options.megabytes = 20;
  CLI::App app("Servers with backups, in turns with servers without.", "replication_bench");
  app.add_option("--megabytes", options.megabytes, "Size of the model, 10^6 bytes of float32")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e5));
  app.add_option("--servers", options.servers, "Server processes, without backups")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--workers", options.workers, "Worker processes, all at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  AddDataPath(app, options);
  AddEffort(app, options.effort);
  if (const auto exit_code = Parse(app, argc, argv)) return *exit_code;
  Report report(options.effort.json);
  Measure(options, report);
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }
