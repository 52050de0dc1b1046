// What the labels of a data folder are called, for reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::worker {

// One name a class: from `folder`/class-names.txt (one a line) where there is one; else those of Fashion-MNIST for a
// folder of that name with 10 classes; else "0", "1", ...
//   kInvalidArgument  the file has another number of names than `classes`
absl::StatusOr<std::vector<std::string>> ReadClassNames(const std::string& folder, uint32_t classes);

}  // namespace slackline::worker
