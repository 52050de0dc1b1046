// Random orders of images that are the same on every worker and platform. std::shuffle and the standard distributions
// differ between standard libraries.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "common/base/split_mix.h"

namespace slackline::images {

// Shuffles by Fisher and Yates, from the back.
inline void Shuffle(SplitMix64& random, absl::Span<uint32_t> order) {
  for (uint64_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[random.Below(left)]);
}

}  // namespace slackline::images
