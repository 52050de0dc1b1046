// Repeats a round for some time and measures the duration of each.
#pragma once

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/support/report.h"

namespace slackline::bench {

struct Rounds {
  double seconds = 0;
  std::vector<double> round_us;

  double per_s() const { return static_cast<double>(round_us.size()) / seconds; }
  double p50_us() const { return Percentile(round_us, 0.5); }
  double p99_us() const { return Percentile(round_us, 0.99); }
};

// Runs at least one round, and as many as begin within `seconds`.
template <typename Round>
Rounds Repeat(double seconds, Round round) {
  Rounds rounds;
  const absl::Time begin = absl::Now();
  absl::Time now = begin;
  do {
    round();
    const absl::Time end = absl::Now();
    rounds.round_us.push_back(absl::ToDoubleMicroseconds(end - now));
    now = end;
    rounds.seconds = absl::ToDoubleSeconds(now - begin);
  } while (rounds.seconds < seconds);
  return rounds;
}

}  // namespace slackline::bench
