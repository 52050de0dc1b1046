// Single values in the kernel's files.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace slackline::power {

// The first word of the file as `Value`; nullopt where it cannot be read, or is none.
template <typename Value>
std::optional<Value> ReadValue(const std::filesystem::path& path) {
  std::ifstream file(path);
  Value value{};
  if (!(file >> value)) return std::nullopt;
  return value;
}

}  // namespace slackline::power
