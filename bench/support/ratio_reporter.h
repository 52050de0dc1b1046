// A table of rates and ratios for memory-bound loops. On a shared machine ratios say more than GB/s.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace slackline::bench {

// Keeps the best rate of each loop over its repetitions and prints the table at the end.
class RatioReporter : public benchmark::BenchmarkReporter {
 public:
  // `ratios` has the pairs (loop, loop to compare with) in the order of the table.
  explicit RatioReporter(std::vector<std::pair<std::string, std::string>> ratios) : ratios_(std::move(ratios)) {}

  bool ReportContext(const Context& context) override {
    PrintBasicContext(&GetErrorStream(), context);
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const auto rate = run.counters.find("bytes_per_second");
      if (run.run_type != Run::RT_Iteration || rate == run.counters.end()) continue;
      double& best = rates_[run.run_name.function_name];
      best = std::max<double>(best, rate->second);
    }
  }

  void Finalize() override {
    for (const auto& [what, rate] : rates_) std::printf("%-28s %6.1f GB/s\n", what.c_str(), rate / 1e9);
    for (const auto& [what, against] : ratios_) {
      // A filter on the command line may have left one of the loops out.
      if (!rates_.contains(what) || !rates_.contains(against)) continue;
      std::printf("ratio %-28s / %-24s %5.2f\n", what.c_str(), against.c_str(), rates_.at(what) / rates_.at(against));
    }
  }

 private:
  const std::vector<std::pair<std::string, std::string>> ratios_;
  std::map<std::string, double> rates_;
};

// Registers a loop with wall time: other processes on the machine slow memory-bound loops down anyway.
template <typename... Arguments>
void RegisterLoop(Arguments... arguments) {
  benchmark::RegisterBenchmark(arguments...)->Unit(benchmark::kMillisecond)->UseRealTime();
}

// Runs all loops several times in turns, so that a busy moment of the machine does not affect only one of them. Flags
// of the command line come after these and override them.
inline int RunInterleaved(int argc, char** argv, RatioReporter& reporter) {
  std::vector<std::string> flags = {"--benchmark_enable_random_interleaving=true", "--benchmark_repetitions=15",
                                    "--benchmark_min_time=0.02"};
  std::vector<char*> all = {argv[0]};
  for (std::string& flag : flags) all.push_back(flag.data());
  all.insert(all.end(), argv + 1, argv + argc);
  int count = static_cast<int>(all.size());
  all.push_back(nullptr);
  benchmark::Initialize(&count, all.data());
  if (benchmark::ReportUnrecognizedArguments(count, all.data())) return 2;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}

}  // namespace slackline::bench
