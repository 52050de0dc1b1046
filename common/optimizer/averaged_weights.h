// The exponential average of the weights, one of the arrays that are kept beside them.
#pragma once

#include "absl/strings/string_view.h"

namespace slackline {

// Name of the average among the arrays of a shard and in checkpoints. The optimizer's arrays have a value for each
// trained element; the average has one for each element.
inline constexpr absl::string_view kAveragedWeights = "ema";

}  // namespace slackline
