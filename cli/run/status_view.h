// Text for what `slackline status` shows besides members: the same as the status page.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "status.pb.h"

namespace slackline::cli {

// Renders alerts, clocks of the workers, staleness, shards, placement, checkpoints and disk. `page` is the address of
// the status page; may be empty.
std::string RenderDetails(const wire::JobStatus& status, absl::string_view page);

// Makes text of other programs safe for a terminal: applies OneLine() to each line.
std::string PrintableLines(absl::string_view text);

}  // namespace slackline::cli
