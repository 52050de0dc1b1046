// Sizes in bytes, written and read as people do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace slackline::cli {

// Examples: "812 B", "3.2 GiB".
std::string RenderBytes(uint64_t bytes);
// Reads a size with a unit of powers of 1000 or 1024, as 812, 8GB or 1.5GiB; nullopt if it is none, less than a byte,
// or more than 1024 TiB.
std::optional<uint64_t> ParseBytes(const std::string& text);

}  // namespace slackline::cli
