// What the status page of a run says, for those who reach only that.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// The HOST:PORT of an address of a page (http://), whatever stands behind it; empty where that is none.
std::string PageAddress(const std::string& url);

struct PageStatus {
  // /api/status as it came.
  std::string json;
  // As the scheduler itself would say it, with `full`; of servers to come and of the final evaluation it says nothing.
  wire::GetStatusReply reply;
};

// Asks the page at HOST:PORT.
//   kInvalidArgument  somebody else's page
//   otherwise as HttpGet() has it
absl::StatusOr<PageStatus> AskPage(const std::string& address, absl::Duration timeout);

// `json`: what /api/status says.
absl::StatusOr<wire::GetStatusReply> ReplyOf(const std::string& json);

}  // namespace slackline::cli
