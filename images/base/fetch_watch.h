// FetchWatch: how whoever waits for a file hears of the wait, and ends it.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace slackline::images {

// Called about once a second, or more often, while a file is fetched. An error ends the fetch, which then returns it.
using FetchWatch = std::function<absl::Status()>;

}  // namespace slackline::images
