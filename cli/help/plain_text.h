// Shows Markdown as text for a terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace slackline::cli::help {

// Returns a page of docs/ as lines of at most 80 columns. Links become their text. Pictures, HTML and comments are left
// out. Blocks of code keep their lines. A table that is too wide becomes a list: the first cell of a row, and below it
// each further cell with the title of its column.
std::string PlainText(absl::string_view markdown);

}  // namespace slackline::cli::help
