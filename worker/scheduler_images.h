// Which files of the images other nodes have: asks the scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/timeouts.h"
#include "worker/data/image_peers.h"

namespace slackline::rpc {
struct Protection;
}

namespace slackline::worker {

struct ImageBoardOptions {
  std::string scheduler;  // as rpc::FollowedChannel has it
  std::shared_ptr<const rpc::Protection> protection = nullptr;
  uint64_t job_fingerprint = 0;
  Timeouts timeouts;
};

// A question that wants a file is asked until there is an answer, for timeouts.startup; the others once.
//   as scheduler.proto says of FindImages
//   kUnavailable, kDeadlineExceeded  the scheduler gives no answer
std::unique_ptr<PeerBoard> MakeImageBoard(const ImageBoardOptions& options);

}  // namespace slackline::worker
