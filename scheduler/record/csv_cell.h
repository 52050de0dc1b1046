// Cells of the tables of a run folder.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/str_format.h"

namespace slackline::scheduler {

// Returns an empty cell for a figure that is not known.
inline std::string CsvCell(const std::optional<double>& value) { return value ? absl::StrFormat("%.6g", *value) : ""; }

}  // namespace slackline::scheduler
