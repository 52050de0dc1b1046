#include "bench/support/beside.h"

#include <ctime>
#include <utility>
#include <vector>

#include "bench/support/rate.h"

namespace slackline::bench {
namespace {

// Of this thread on a processor: a pass takes milliseconds, and one that others interrupt would tell about them.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double GbPerS(const Loop& loop) {
  const double begin = ThreadSeconds();
  loop.pass();
  return 1e-9 * loop.bytes / (ThreadSeconds() - begin);
}

}  // namespace

Row MeasureBeside(std::string what, double seconds, const Loop& loop, const Loop& against) {
  std::vector<double> rates, against_rates, ratios;
  bool loop_first = false;
  // Untimed: pages and caches are as a pass leaves them.
  loop.pass();
  Repeat(seconds, [&] {
    if (loop_first) rates.push_back(GbPerS(loop));
    against_rates.push_back(GbPerS(against));
    if (!loop_first) rates.push_back(GbPerS(loop));
    ratios.push_back(rates.back() / against_rates.back());
    loop_first = !loop_first;
  });
  return Row(std::move(what))
      .Add("gb_per_s", Median(std::move(rates)))
      .Add("against_gb_per_s", Median(std::move(against_rates)))
      .Add("ratio", Median(std::move(ratios)));
}

}  // namespace slackline::bench
