// A loop beside what it is held against, over the same memory and in turns, so that whatever else the machine does
// meets both.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "bench/support/report.h"

namespace slackline::bench {

struct Loop {
  // What one pass names, STREAM's way: without the write-allocate.
  double bytes = 0;
  absl::FunctionRef<void()> pass;
};

// One round is a pass of each, in changing order; at least one, and as many as begin within `seconds`. Medians over the
// rounds: gb_per_s of both, and their ratio within a round.
Row MeasureBeside(std::string what, double seconds, const Loop& loop, const Loop& against);

}  // namespace slackline::bench
