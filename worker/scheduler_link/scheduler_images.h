// Asks the scheduler which image files other nodes have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/time/timeouts.h"
#include "images/prepared/image_peers.h"

namespace slackline::rpc {
struct Protection;
}

namespace slackline::worker {

struct ImageBoardOptions {
  std::string scheduler;  // place, see rpc::FollowedChannel
  std::shared_ptr<const rpc::Protection> protection = nullptr;
  uint64_t job_fingerprint = 0;
  Timeouts timeouts;
};

// Returns a board that asks the scheduler. A question that wants a file is repeated until there is an answer, for at
// most timeouts.startup. Other questions are asked once. Errors of Ask():
//   kUnavailable, kDeadlineExceeded  the scheduler gives no answer
//   others                           see FindImages in scheduler.proto
std::unique_ptr<images::PeerBoard> MakeImageBoard(const ImageBoardOptions& options);

}  // namespace slackline::worker
