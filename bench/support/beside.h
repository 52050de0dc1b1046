// Compares a loop with another one over the same memory. The two alternate, so that other load on the machine affects
// both.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "bench/support/report.h"

namespace slackline::bench {

struct Loop {
  // Bytes that one pass reads and writes, counted as STREAM counts them: without the write-allocate.
  double bytes = 0;
  absl::FunctionRef<void()> pass;
};

// Runs rounds of one pass of each loop, in alternating order: at least one round, and as many as begin within
// `seconds`. Returns medians over the rounds: gb_per_s of both loops, and their ratio within a round.
Row MeasureBeside(std::string what, double seconds, const Loop& loop, const Loop& against);

}  // namespace slackline::bench
