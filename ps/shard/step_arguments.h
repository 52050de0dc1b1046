// Converts the engine's decision about a step into the arguments of the step.
#pragma once

#include "ps/consistency/events.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

inline StepArguments ArgumentsOf(const ApplyAction& apply) {
  StepArguments arguments{.lr_scale = apply.lr_scale,
                          .average_rate = apply.average_rate,
                          .samples = apply.samples,
                          .batches = apply.batches,
                          .workers = apply.workers};
  for (const ApplyAction::Part& part : apply.parts) {
    arguments.staleness += part.weight * static_cast<double>(part.staleness);
  }
  return arguments;
}

}  // namespace slackline::ps
