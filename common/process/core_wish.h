// The cores that a job file asks for a worker to compute on (worker.cores).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace slackline {

struct CoreWish {
  // kNone: the system decides. kCount: this many cores. kList: these cores. kAuto: a share of the cores of the machine.
  enum class Kind { kNone, kCount, kList, kAuto };
  Kind kind = Kind::kNone;
  uint32_t count = 0;
  std::vector<uint32_t> cores = {};  // kList only; ascending

  bool operator==(const CoreWish&) const = default;
};

// Parses worker.cores. A number alone is a count, auto alone is kAuto, all else is a list of cores ("8") and ranges of
// cores ("0-3", "8-8").
//   kInvalidArgument  "found X; allowed is Y"
absl::StatusOr<CoreWish> ParseCores(absl::Span<const std::string> items);

// Returns ascending core numbers as text: "0-3, 8"; "none" if there are none.
std::string CoresText(absl::Span<const uint32_t> cores);

}  // namespace slackline
