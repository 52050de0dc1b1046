// Measures the norm of a push on the server.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

// Returns the L2 norm of the first `elements` values of a push, decoded.
// Requires: the pieces were checked and have at least that many values.
//
// Hot: one pass over the bytes, block by block in the nearest cache; fp32 is not copied.
double PushNorm(absl::Span<const EncodedPiece> pieces, uint64_t elements);

}  // namespace slackline::ps
