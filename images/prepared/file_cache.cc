#include "images/prepared/file_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/process/steady_flag.h"
#include "common/storage/checksum.h"
#include "common/time/clock.h"

namespace slackline::images {
namespace {

namespace fs = std::filesystem;

constexpr char kPartEnding[] = ".part";
constexpr char kLockEnding[] = ".lock";
// How often a process that waits for another one's copy looks.
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);
// How often a copy whose bytes are wrong is made.
constexpr int kMakingsMax = 3;
constexpr size_t kReadBytes = size_t{1} << 20;
constexpr size_t kChecksumDigits = 16;

// Whoever may write in the folder of `path` shares it, and so may read what is in it, whatever the umask or the mode of
// what was copied. The rights that there are stay.
void ShareWithFolder(int descriptor, const std::string& path) {
  struct stat folder {
  }, file{};
  if (::stat(fs::path(path).parent_path().c_str(), &folder) != 0 || ::fstat(descriptor, &file) != 0) return;
  mode_t mode = file.st_mode & 07777;
  if ((folder.st_mode & S_IWGRP) != 0) mode |= S_IRGRP;
  if ((folder.st_mode & S_IWOTH) != 0) mode |= S_IROTH;
  // Somebody else's stays as it is.
  if (mode != (file.st_mode & 07777)) ::fchmod(descriptor, mode);
}

// To be locked; -1 and errno: it cannot be opened. Somebody else's may be read only, which is enough; and where it is
// there, O_CREAT would be refused in a folder like /tmp (fs.protected_regular).
int OpenLock(const std::string& path) {
  int descriptor = -1;
  // Somebody else may make it between both calls; a link that leads nowhere is never there, and never made.
  for (int attempt = 0; attempt < 3; ++attempt) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0 && errno == EACCES) descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0 || errno != ENOENT) return descriptor;
    descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) ShareWithFolder(descriptor, path);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return descriptor;
}

// An open file and its lock.
class LockedFile {
 public:
  LockedFile(const std::string& path, int flags) : LockedFile(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  struct Lockable {};
  // A file that is there for its lock alone. It is made if it is missing.
  LockedFile(const std::string& path, Lockable /*tag*/) : LockedFile(OpenLock(path)) {}
  ~LockedFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // Without waiting.
  bool Lock(int kind) const { return ::flock(descriptor_, kind | LOCK_NB) == 0; }
  // It is still the file of that name.
  bool Is(const std::string& path) const {
    struct stat own {
    }, named{};
    return ::fstat(descriptor_, &own) == 0 && ::stat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino;
  }

 private:
  explicit LockedFile(int descriptor) : descriptor_(descriptor) {}

  const int descriptor_;
};

absl::Status CacheError(absl::string_view doing, const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

uint64_t BytesOf(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 ? static_cast<uint64_t>(about.st_size) : 0;
}

absl::StatusOr<uint64_t> ChecksumOfFile(const std::string& path) {
  const LockedFile file(path, O_RDONLY);
  if (!file.open()) return CacheError("open", path);
  RunningChecksum checksum;
  std::vector<char> bytes(kReadBytes);
  for (;;) {
    const ssize_t got = ::read(file.descriptor(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CacheError("read", path);
    if (got == 0) return checksum.value();
    checksum.Add(bytes.data(), static_cast<size_t>(got));
  }
}

// The copy, locked against removal; nothing where there is none that is whole.
std::shared_ptr<LockedFile> Hold(const std::string& path, uint64_t bytes) {
  auto file = std::make_shared<LockedFile>(path, O_RDONLY);
  if (!file->open() || !file->Lock(LOCK_SH) || !file->Is(path) || BytesOf(path) != bytes) return nullptr;
  // Now is when it was used last.
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return file;
}

// Waits for `file`'s lock as long as `path` grows.
absl::Status AwaitLock(const LockedFile& file, const std::string& path, absl::Duration patience,
                       const FetchWatch& watch = nullptr) {
  uint64_t bytes = 0;
  for (absl::Time grown = SteadyTime().Now(); !file.Lock(LOCK_EX); SteadyPause(kLookEvery)) {
    if (absl::Status watched = watch == nullptr ? absl::OkStatus() : watch(); !watched.ok()) return watched;
    if (const uint64_t now = BytesOf(path); now != bytes) {
      bytes = now;
      grown = SteadyTime().Now();
    }
    if (SteadyTime().Now() - grown > patience) {
      return absl::DeadlineExceededError(absl::StrCat("another process of this node holds the lock of ", path,
                                                      ", which has not grown for ", absl::FormatDuration(patience)));
    }
  }
  return absl::OkStatus();
}

// CHECKSUM-BYTES-NAME; nullopt: it is no file of a cache.
std::optional<uint64_t> BytesInName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits('-', 2));
  uint64_t bytes = 0;
  const bool known = parts.size() == 3 && parts[0].size() == kChecksumDigits &&
                     absl::c_all_of(parts[0], absl::ascii_isxdigit) && absl::SimpleAtoi(parts[1], &bytes);
  return known ? std::optional(bytes) : std::nullopt;
}

// On the disk, so that a copy that has its name is whole also when the power fails; and for all who share the folder.
absl::Status Finish(const std::string& path) {
  const LockedFile file(path, O_RDONLY);
  if (!file.open() || ::fsync(file.descriptor()) != 0) return CacheError("write", path);
  ShareWithFolder(file.descriptor(), path);
  return absl::OkStatus();
}

struct CachedCopy {
  std::string path;
  uint64_t bytes = 0;
  fs::file_time_type used;
};

std::string Gigabytes(uint64_t bytes) { return absl::StrFormat("%.3f GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

absl::StatusOr<FileCache> FileCache::Open(const Options& options) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("data.cache.folder: cannot make ", options.folder, ": ", error.message()));
  }
  if (::access(options.folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    const absl::Status status = CacheError("write to", options.folder);
    return absl::Status(status.code(), absl::StrCat("data.cache.folder: ", status.message()));
  }
  return FileCache(options);
}

std::string FileCache::PathOf(const PreparedFile& file) const {
  return absl::StrFormat("%s/%016x-%d-%s", options_.folder, file.checksum, file.bytes, file.name);
}

absl::StatusOr<HeldFile> FileCache::Get(const PreparedFile& file, const Fetch& fetch, const FetchWatch& watch) const {
  const std::string path = PathOf(file);
  const auto held = [&](std::shared_ptr<LockedFile> copy) { return HeldFile{.path = path, .hold = std::move(copy)}; };
  if (auto copy = Hold(path, file.bytes)) return held(std::move(copy));
  const LockedFile lock(path + kLockEnding, LockedFile::Lockable());
  if (!lock.open()) return CacheError("make", path + kLockEnding);
  if (absl::Status locked = AwaitLock(lock, path + kPartEnding, options_.patience, watch); !locked.ok()) return locked;
  // Somebody else may have made it meanwhile.
  if (auto copy = Hold(path, file.bytes)) return held(std::move(copy));
  absl::StatusOr<std::shared_ptr<const void>> made = Make(file, path, fetch);
  if (!made.ok()) return made.status();
  return HeldFile{.path = path, .hold = *std::move(made)};
}

std::optional<HeldFile> FileCache::Find(const PreparedFile& file) const {
  const std::string path = PathOf(file);
  std::shared_ptr<LockedFile> copy = Hold(path, file.bytes);
  if (copy == nullptr) return std::nullopt;
  return HeldFile{.path = path, .hold = std::move(copy)};
}

absl::StatusOr<std::shared_ptr<const void>> FileCache::Make(const PreparedFile& file, const std::string& path,
                                                            const Fetch& fetch) const {
  const std::string part = path + kPartEnding;
  uint64_t found = 0;
  for (int i = 0; i < kMakingsMax; ++i) {
    if (absl::Status room = MakeRoom(file, part); !room.ok()) return room;
    if (absl::Status fetched = fetch(part); !fetched.ok()) return fetched;
    const absl::StatusOr<uint64_t> checksum = ChecksumOfFile(part);
    if (!checksum.ok()) return checksum.status();
    if (*checksum == file.checksum && BytesOf(part) == file.bytes) {
      if (absl::Status finished = Finish(part); !finished.ok()) return finished;
      return NameCopy(part, path, file.bytes);
    }
    found = *checksum;
    ::unlink(part.c_str());
  }
  return absl::DataLossError(
      absl::StrFormat("%s is not what index.json says, %d times: its XXH3 is %016x, wanted is %016x", file.name,
                      kMakingsMax, found, file.checksum));
}

absl::StatusOr<std::shared_ptr<const void>> FileCache::LockFolder() const {
  const std::string path = options_.folder + "/lock";
  auto lock = std::make_shared<const LockedFile>(path, LockedFile::Lockable());
  if (!lock->open()) return CacheError("make", path);
  if (absl::Status locked = AwaitLock(*lock, path, options_.patience); !locked.ok()) return locked;
  return lock;
}

absl::StatusOr<std::shared_ptr<const void>> FileCache::NameCopy(const std::string& part, const std::string& path,
                                                                uint64_t bytes) const {
  const absl::StatusOr<std::shared_ptr<const void>> lock = LockFolder();
  if (!lock.ok()) return lock.status();
  if (::rename(part.c_str(), path.c_str()) != 0) return CacheError("rename", part);
  std::shared_ptr<LockedFile> copy = Hold(path, bytes);
  if (copy == nullptr) return absl::UnavailableError(absl::StrCat("somebody has removed ", path));
  return copy;
}

absl::Status FileCache::MakeRoom(const PreparedFile& file, const std::string& part) const {
  const absl::StatusOr<std::shared_ptr<const void>> lock = LockFolder();
  if (!lock.ok()) return lock.status();
  std::vector<CachedCopy> copies;
  uint64_t used = 0;
  std::error_code error;
  for (fs::directory_iterator it(options_.folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    // The folder may be one that has other things in it.
    const std::optional<uint64_t> named = BytesInName(it->path().filename().string());
    if (!named || path == part || absl::EndsWith(path, kLockEnding)) continue;
    std::error_code gone;
    uint64_t bytes = it->file_size(gone);
    if (gone) continue;
    // One in the making needs what its name says.
    if (absl::EndsWith(path, kPartEnding)) bytes = std::max(bytes, *named);
    used += bytes;
    copies.push_back({.path = path, .bytes = bytes, .used = it->last_write_time(gone)});
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list ", options_.folder, ": ", error.message()));
  std::sort(copies.begin(), copies.end(), [](const CachedCopy& a, const CachedCopy& b) { return a.used < b.used; });
  for (const CachedCopy& copy : copies) {
    if (used + file.bytes <= options_.bytes_max) break;
    // Of a part, whose maker has another file's lock.
    const bool is_part = absl::EndsWith(copy.path, kPartEnding);
    const std::string locked =
        is_part ? copy.path.substr(0, copy.path.size() - sizeof(kPartEnding) + 1) + kLockEnding : copy.path;
    const LockedFile held = is_part ? LockedFile(locked, LockedFile::Lockable()) : LockedFile(locked, O_RDONLY);
    if (!held.open() || !held.Lock(LOCK_EX)) continue;
    if (::unlink(copy.path.c_str()) == 0) used -= copy.bytes;
  }
  if (used + file.bytes <= options_.bytes_max) {
    // What somebody else has begun and left cannot be gone on with.
    if (::access(part.c_str(), F_OK) == 0 && ::access(part.c_str(), W_OK) != 0) ::unlink(part.c_str());
    // The room is taken before others look for some.
    const LockedFile taken(part, O_RDONLY | O_CREAT);
    return taken.open() ? absl::OkStatus() : CacheError("make", part);
  }
  return absl::ResourceExhaustedError(absl::StrCat("data.cache.gigabytes_max: found ", Gigabytes(options_.bytes_max),
                                                   ", of which ", Gigabytes(used), " are in use; ", file.name,
                                                   " needs ", Gigabytes(file.bytes)));
}

}  // namespace slackline::images
