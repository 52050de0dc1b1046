// The description of the service's HTTP interface, which is part of the program.
#pragma once

#include "absl/strings/string_view.h"

namespace slackline::cli {

// Returns openapi.yaml, in the format of OpenAPI 3.1.
absl::string_view OpenApiYaml();

}  // namespace slackline::cli
