// Limits on what the status page shows, whatever the size and the length of the run.
#pragma once

#include <cstddef>

namespace slackline::scheduler {

inline constexpr size_t kWorkersShown = 1000;
inline constexpr size_t kShardsShown = 4096;
inline constexpr size_t kMembersOfNodeShown = 64;
inline constexpr size_t kCurvePointsMax = 600;
inline constexpr size_t kEventsShown = 200;
inline constexpr size_t kCheckpointsShown = 20;
inline constexpr size_t kLogsShown = 1000;
inline constexpr size_t kLogLinesShown = 100;
inline constexpr size_t kLogBytesShown = size_t{64} << 10;
// Seconds for which a lost worker or a divergence stays an alert.
inline constexpr double kLostForS = 600;

}  // namespace slackline::scheduler
