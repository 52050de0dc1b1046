#include "scheduler/record/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace slackline::scheduler {
namespace {

absl::Status LineError(const std::string& path, int error) {
  const std::string message = absl::StrCat("cannot write ", path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

// Where the last whole line ends.
off_t EndOfLines(int descriptor, off_t size) {
  std::array<char, 4096> block;
  while (size > 0) {
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(block.size()));
    const ssize_t read = ::pread(descriptor, block.data(), static_cast<size_t>(size - begin), begin);
    if (read < size - begin) return size;
    for (off_t at = size; at > begin; --at) {
      if (block[static_cast<size_t>(at - begin - 1)] == '\n') return at;
    }
    size = begin;
  }
  return 0;
}

}  // namespace

std::string EventLine(absl::string_view event, absl::Time wall_time) {
  return absl::StrCat(absl::FormatTime("%Y-%m-%d %H:%M:%E3S ", wall_time, absl::LocalTimeZone()), event);
}

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path, const std::string& header) {
  std::unique_ptr<LineFile> file(new LineFile(path, header));
  if (absl::Status opened = file->OpenFile(); !opened.ok()) return opened;
  return file;
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status LineFile::OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  struct stat file {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &file) != 0) return LineError(path_, errno);
  const off_t end = EndOfLines(descriptor_, file.st_size);
  if (end < file.st_size && ::ftruncate(descriptor_, end) != 0) return LineError(path_, errno);
  return end > 0 || header_.empty() ? absl::OkStatus() : WriteLine(header_);
}

absl::Status LineFile::WriteLine(const std::string& line) {
  const std::string text = line + '\n';
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  ssize_t written;
  while ((written = ::write(descriptor_, text.data(), text.size())) < 0 && errno == EINTR) {
  }
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  // A part of it is written where the disk has got full.
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0 && ::ftruncate(descriptor_, before) != 0) return LineError(path_, errno);
  return LineError(path_, error);
}

bool LineFile::Removed() const {
  struct stat file {};
  return descriptor_ < 0 || (::fstat(descriptor_, &file) == 0 && file.st_nlink == 0);
}

absl::Status LineFile::Add(std::string line) {
  // A line of ours is one, whatever others have put into it.
  std::replace(line.begin(), line.end(), '\n', ' ');
  kept_.push_back(std::move(line));
  if (kept_.size() > kKeptMax) kept_.pop_front();
  return Flush();
}

absl::Status LineFile::Flush() {
  if (kept_.empty()) return absl::OkStatus();
  if (Removed()) {
    if (absl::Status opened = OpenFile(); !opened.ok()) return opened;
  }
  while (!kept_.empty()) {
    if (absl::Status written = WriteLine(kept_.front()); !written.ok()) return written;
    kept_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace slackline::scheduler
