// A file as memory, read only.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace slackline::worker {

// Thread-safety: const calls are safe.
// Hazard:        a file that is cut while it is mapped ends the process (SIGBUS) where it is read.
class MappedFile {
 public:
  //   kNotFound     no such file
  //   kUnavailable  it cannot be opened or mapped; names the file and the reason
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

}  // namespace slackline::worker
