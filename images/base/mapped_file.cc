#include "images/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::images {
namespace {

absl::Status MapError(absl::string_view doing, const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return MapError("open", path);
  struct stat about {};
  MappedFile file;
  absl::Status status = absl::OkStatus();
  if (::fstat(descriptor, &about) != 0) {
    status = MapError("look at", path);
  } else if (!S_ISREG(about.st_mode)) {
    status = absl::UnavailableError(absl::StrCat(path, " is no file"));
  } else if (about.st_size > 0) {
    void* data = ::mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) {
      status = MapError("map", path);
    } else {
      file.data_ = data;
      file.size_ = static_cast<size_t>(about.st_size);
    }
  }
  ::close(descriptor);
  if (!status.ok()) return status;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace slackline::images
