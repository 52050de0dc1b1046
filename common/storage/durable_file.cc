#include "common/storage/durable_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/process/kill_point.h"

namespace slackline {
namespace {

// What is left of the disk under a file; with a comma before it, empty where nobody says.
std::string RoomAt(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return "";
  const double block = static_cast<double>(disk.f_frsize) / 1e6;
  return absl::StrFormat(", %.1f of %.1f MB are free in %s", block * static_cast<double>(disk.f_bavail),
                         block * static_cast<double>(disk.f_blocks), folder);
}

absl::Status FileError(absl::string_view doing, const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error));
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return full ? absl::ResourceExhaustedError(message + RoomAt(path)) : absl::UnavailableError(message);
}

}  // namespace

DurableFile::~DurableFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

absl::Status DurableFile::Open() {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  return descriptor_ < 0 ? FileError("create", temporary_) : absl::OkStatus();
}

absl::Status DurableFile::Write(const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write", temporary_);
    at += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status DurableFile::WriteAt(uint64_t offset, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor_, at, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write", temporary_);
    at += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Commit() {
  kill_point::Passed("fsync");
  if (::fsync(descriptor_) != 0) return FileError("sync", temporary_);
  kill_point::Passed("rename");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return FileError("rename to", path_);
  ::close(descriptor_);
  descriptor_ = -1;
  // The name, too, must survive a crash.
  const size_t slash = path_.rfind('/');
  return SyncFolder(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
}

absl::Status SyncFolder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError("open", folder);
  const absl::Status status = ::fsync(descriptor) == 0 ? absl::OkStatus() : FileError("sync", folder);
  ::close(descriptor);
  return status;
}

}  // namespace slackline
