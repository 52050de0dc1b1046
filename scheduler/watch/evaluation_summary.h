// EvaluationSummary: the result of an evaluation, as runs are judged by it.
#pragma once

#include <cstdint>
#include <optional>

#include "common/metrics/measured.h"

namespace slackline::scheduler {

// Figures that were measured on the test samples; those that were not are absent.
struct EvaluationSummary {
  uint32_t epoch = 0;            // number of completed epochs
  double time_s = 0;             // time since training began
  uint64_t samples = 0;          // trained until then by all workers
  uint64_t samples_applied = 0;  // applied ones among `samples`
  std::optional<double> accuracy = std::nullopt;
  std::optional<double> loss = std::nullopt;
  NamedValues values = {};  // of a script
  uint64_t tested = 0;      // test samples; 0 if not known
  double seconds = 0;       // time that the evaluation took
  bool apart = false;       // true for the last one if it is on other images (data.test_at_end)
  bool map = false;         // true if objects are found: accuracy is their mean average precision, and there is no loss
};

}  // namespace slackline::scheduler
