// Wraps texts for a terminal.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

// Width of `--help` and of the pages of `slackline help`, in columns.
inline constexpr size_t kTextColumns = 80;

// Returns the columns that a UTF-8 text takes, with one column for each code point.
size_t Columns(absl::string_view text);

// Returns `text` as lines of at most kTextColumns, each with a line feed. Every run of white space counts as one blank.
// A word that is too long gets a line of its own.
//   first  stands before the first line
//   rest   stands before all further lines
std::string WrapText(absl::string_view text, absl::string_view first, absl::string_view rest);

}  // namespace slackline
