// What a job file says of the cores that a worker computes on, as worker.cores has it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace slackline {

struct CoreWish {
  // kNone: the system decides. kCount: so many. kList: these. kAuto: a share of those that are there.
  enum class Kind { kNone, kCount, kList, kAuto };
  Kind kind = Kind::kNone;
  uint32_t count = 0;
  std::vector<uint32_t> cores = {};  // of kList; rising

  bool operator==(const CoreWish&) const = default;
};

// A number alone is a count, auto alone is kAuto, all else is a list of cores ("8") and ranges of them ("0-3", "8-8").
//   kInvalidArgument  "found X; allowed is Y"
absl::StatusOr<CoreWish> ParseCores(absl::Span<const std::string> items);

// "0-3, 8" of rising numbers; "none".
std::string CoresText(absl::Span<const uint32_t> cores);

}  // namespace slackline
