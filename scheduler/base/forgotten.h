// Numbers that a restarted scheduler leaves out.
#pragma once

#include <cstdint>

namespace slackline::scheduler {

// The scheduler before it may have given out as many numbers after it had last saved.
inline constexpr uint64_t kForgottenMax = 1'000'000;

}  // namespace slackline::scheduler
