// Status of a run as its status page reports it, for users who can reach only the page.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Returns HOST:PORT of a page's address (http://), whatever path follows. Empty if `url` is no such address.
std::string PageAddress(const std::string& url);

struct PageStatus {
  // Body of /api/status, unchanged.
  std::string json;
  // Same content as the scheduler's own reply with `full`, but without the servers to come and the final evaluation.
  wire::GetStatusReply reply;
};

// Asks the page at HOST:PORT for its status.
//   kInvalidArgument  another program's page
//   others            as HttpGet()
absl::StatusOr<PageStatus> AskPage(const std::string& address, absl::Duration timeout);

// Parses `json`, the body of /api/status.
absl::StatusOr<wire::GetStatusReply> ReplyOf(const std::string& json);

}  // namespace slackline::cli
