// The norm of a push, as the server measures it.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "ps/shard_state.h"

namespace slackline::ps {

// L2 norm of the first `elements` values of a push, decoded. Requires: the pieces were checked and have so many.
//
// Hot: one pass over the bytes, block by block in the nearest cache; no copy of fp32.
double PushNorm(absl::Span<const EncodedPiece> pieces, uint64_t elements);

}  // namespace slackline::ps
