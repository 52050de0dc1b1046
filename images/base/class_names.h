// Names the classes of a data folder, for reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::images {

// Returns one name per class. The names come from `folder`/class-names.txt (one per line) if that file exists.
// Otherwise they are those of Fashion-MNIST for a folder of that name with 10 classes, or else "0", "1", ...
//   kInvalidArgument  the file does not have `classes` names
absl::StatusOr<std::vector<std::string>> ReadClassNames(const std::string& folder, uint32_t classes);

}  // namespace slackline::images
