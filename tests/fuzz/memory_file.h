// Presents bytes as a file, for code that reads files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace slackline::fuzz {
// A file in memory that can be opened by name.
class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view bytes) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    SLACKLINE_CHECK(file_ >= 0);
    SLACKLINE_CHECK(::write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(file_); }

  std::string name() const { return std::to_string(file_); }

 private:
  const int file_;
};

}  // namespace slackline::fuzz
