// Pushes of simulated workers that are wrong.
#pragma once

#include <memory>

#include "job.pb.h"
#include "simulator/computation.h"
#include "simulator/pace.h"

namespace slackline::simulator {

// Returns a push whose trained elements are wrong as `kind` says, with the losses of `gradient`. Averaged elements stay
// as they are. Requires: `gradient` has the values of a push.
std::shared_ptr<const Gradient> Poisoned(const Gradient& gradient, job::Poison::Kind kind, const Learned& learned,
                                         RandomStream& random);

}  // namespace slackline::simulator
