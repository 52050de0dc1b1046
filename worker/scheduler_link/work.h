// Work that the scheduler gives to a worker, and the worker's membership in the job.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "worker/base/stream_parts.h"
#include "worker/evaluation/evaluation.h"

namespace slackline::worker {

// Membership of this worker in one of its lives.
struct WorkerMembership {
  JobId job;
  WorkerId worker;
  Incarnation incarnation;
  Clock64 first_clock;
  // True if the worker must send its initial weights to all shards before it pulls.
  bool send_seed = false;
};

// Samples [begin, end) of the epoch's order.
struct RangeWork {
  RangeId range;
  uint32_t epoch = 0;  // counted from 0
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t batch_size = 0;  // 0: the batch size of the job
};
// Part of a range that is done: every shard has answered for the samples up to position `done_to` of the order of the
// epoch. All zeros: no part of any range.
struct RangePart {
  RangeId range;
  uint64_t done_to = 0;
  // Positions in the parts of a stream up to which every shard has answered.
  std::vector<PartPosition> reached = {};
};
// The worker is not in the clock now, and asks again after `retry`.
struct StandbyWork {
  absl::Duration retry;
};
struct LeaveWork {
  std::string reason;
};
using Work = std::variant<RangeWork, EvaluationWork, StandbyWork, LeaveWork>;

}  // namespace slackline::worker
