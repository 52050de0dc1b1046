// MappedFile: a file mapped into memory, read only.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace slackline::images {

// MappedFile owns the mapping of one file.
//
// Thread-safety: const calls are safe.
// Hazard:        if the file is truncated while it is mapped, reading the lost part ends the process (SIGBUS).
class MappedFile {
 public:
  // Maps a file.
  //   kNotFound     no such file
  //   kUnavailable  the file cannot be opened or mapped; names the file and the reason
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace slackline::images
