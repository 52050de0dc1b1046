// Logging for all processes: spdlog behind one header, one line a record with time, process and level.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace slackline::log {

enum class Least { kInfo, kWarning, kNothing };

// Names this process in every line ("ps-1") and writes to standard error what is at least so important. Call once,
// early.
void Initialise(const std::string& process, Least least = Least::kInfo);

void Info(absl::string_view message);
void Warning(absl::string_view message);
void Error(absl::string_view message);

template <typename... Parts>
void Info(const Parts&... parts) requires(sizeof...(Parts) > 1) {
  Info(absl::string_view(absl::StrCat(parts...)));
}
template <typename... Parts>
void Warning(const Parts&... parts) requires(sizeof...(Parts) > 1) {
  Warning(absl::string_view(absl::StrCat(parts...)));
}
template <typename... Parts>
void Error(const Parts&... parts) requires(sizeof...(Parts) > 1) {
  Error(absl::string_view(absl::StrCat(parts...)));
}

// Waits until what was logged is written. For the end of a process.
void Flush();

}  // namespace slackline::log
