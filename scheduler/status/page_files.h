// Files of scheduler/status/page/, as they were when the program was built (cmake/embed.cmake).
#pragma once

#include "absl/strings/string_view.h"

namespace slackline::scheduler {

absl::string_view PageHtml();
absl::string_view PageCss();
absl::string_view PageJs();
absl::string_view ChartsJs();
absl::string_view IconSvg();

}  // namespace slackline::scheduler
