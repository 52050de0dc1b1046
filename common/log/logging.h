// Logging for all processes: spdlog behind one header. Each record is one line with time, process and level.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace slackline::log {

enum class Least { kInfo, kWarning, kNothing };

// Names this process in every line ("ps-1") and writes records of at least level `least` to standard error. Call it
// once, early.
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

// Waits until all records are written. Call it at the end of a process.
void Flush();

}  // namespace slackline::log
