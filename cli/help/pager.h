// Shows long texts on a terminal page by page.
#pragma once

#include <string>

namespace slackline::cli::help {

// Writes `text` to standard output. On a terminal it goes through the user's pager ($PAGER, or less); if that cannot be
// started, the text appears without one.
void Show(const std::string& text);

}  // namespace slackline::cli::help
