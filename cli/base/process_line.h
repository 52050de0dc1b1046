// What the system knows of a process, as /proc/PID/stat has it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace slackline::cli {

struct ProcessLine {
  pid_t pid = 0;
  // State by its letter: 'Z' has ended and is not reaped.
  char state = 'X';
  // Time of the start, which tells apart two processes with the same id.
  std::string start;
};

// Reads /proc/PID/stat, or a copy of it. Returns nullopt if the file has no such line.
std::optional<ProcessLine> ReadProcessLine(const std::filesystem::path& file);

// Returns the first line of a file; empty if there is none.
std::string FirstLine(const std::filesystem::path& file);

}  // namespace slackline::cli
