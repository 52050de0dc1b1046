// Reads single values from the kernel's files.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>

namespace slackline::power {

// Returns the first word of the file as `Value`; nullopt if the file cannot be read or holds no such value.
template <typename Value>
std::optional<Value> ReadValue(const std::filesystem::path& path) {
  std::ifstream file(path);
  Value value{};
  if (!(file >> value)) return std::nullopt;
  return value;
}

}  // namespace slackline::power
