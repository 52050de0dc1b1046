// A table of rates and ratios for loops that memory bounds: on a shared machine ratios say more than GB/s.
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
  // In the order of the table: a loop, and the one that it is held against.
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
      // Nothing where a filter left one of them out.
      if (!rates_.contains(what) || !rates_.contains(against)) continue;
      std::printf("ratio %-28s / %-24s %5.2f\n", what.c_str(), against.c_str(), rates_.at(what) / rates_.at(against));
    }
  }

 private:
  const std::vector<std::pair<std::string, std::string>> ratios_;
  std::map<std::string, double> rates_;
};

// Registers a loop. Time on the wall: other processes on the machine count against memory-bound loops anyway.
template <typename... Arguments>
void RegisterLoop(Arguments... arguments) {
  benchmark::RegisterBenchmark(arguments...)->Unit(benchmark::kMillisecond)->UseRealTime();
}

// Runs all loops several times in turns, so that a busy moment of the machine does not hit one of them alone. Flags
// of the command line come after these and win.
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
