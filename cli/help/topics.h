// Pages of docs/ that `slackline help TOPIC` shows, as they were when the program was built.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace slackline::cli::help {

struct Topic {
  absl::string_view name;
  absl::string_view markdown;
};

// Returns the pages of the list `topics` in cli/help/topics.cmake, in its order.
const std::vector<Topic>& Topics();

}  // namespace slackline::cli::help
