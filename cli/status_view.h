// What `slackline status` shows besides members: the same as the status page, as text.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "status.pb.h"

namespace slackline::cli {

// Alerts, clocks of the workers, staleness, shards, placement, checkpoints, disk. `page`: where the status page is; may
// be empty.
std::string RenderDetails(const wire::JobStatus& status, absl::string_view page);

// What somebody else has written, for a terminal: OneLine() of each line.
std::string PrintableLines(absl::string_view text);

}  // namespace slackline::cli
