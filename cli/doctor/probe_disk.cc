#include "cli/doctor/probe_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace slackline::cli::doctor {
namespace {

namespace fs = std::filesystem;

struct NamedFileSystem {
  uint32_t magic;
  const char* name;
};
// As statfs(2) and the file systems' own sources have them.
constexpr NamedFileSystem kFileSystems[] = {
    {0x6969, "nfs"},           {0x0bd00bd0, "lustre"}, {0x47504653, "gpfs"}, {0x19830326, "beegfs"},
    {0x00c36400, "ceph"},      {0xff534d42, "cifs"},   {0xfe534d42, "smb2"}, {0x01021994, "tmpfs"},
    {0x794c7630, "overlayfs"}, {0xef53, "ext4"},       {0x58465342, "xfs"},  {0x9123683e, "btrfs"},
    {0x2fc12fc1, "zfs"},       {0x65735546, "fuse"},   {0x01021997, "9p"},   {0x61636673, "acfs"},
    {0x5346414f, "afs"},       {0x42465331, "befs"},   {0x9fa0, "proc"},     {0x858458f6, "ramfs"},
};

std::string NameOf(uint64_t magic) {
  for (const NamedFileSystem& known : kFileSystems) {
    if (known.magic == static_cast<uint32_t>(magic)) return known.name;
  }
  return absl::StrCat("0x", absl::Hex(static_cast<uint32_t>(magic)));
}

absl::Status Failed(const std::string& what) {
  const int error = errno;
  const std::string why = absl::StrCat(what, ": ", ::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(why) : absl::UnavailableError(why);
}

// The folder of the trial, which is removed with all that is in it.
class TrialFolder {
 public:
  static absl::StatusOr<TrialFolder> Make(const fs::path& parent) {
    std::string pattern = (parent / ".slackline-doctor-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) return Failed(absl::StrCat("cannot make a folder in ", parent.string()));
    return TrialFolder(pattern);
  }
  TrialFolder(TrialFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TrialFolder& operator=(TrialFolder&&) = delete;
  ~TrialFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  explicit TrialFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

absl::Status WriteAll(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status WriteSynced(const std::string& path, uint64_t megabytes, absl::Time deadline, double& mb_per_s) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("open");
  // Not zeros, which some file systems do not write.
  std::vector<char> piece(size_t{1} << 20);
  uint64_t state = 88172645463325252;
  for (char& c : piece) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    c = static_cast<char>(state);
  }
  const absl::Time begin = absl::Now();
  absl::Status status;
  uint64_t written = 0;
  for (; status.ok() && written < megabytes && absl::Now() < deadline; ++written) {
    status = WriteAll(fd, piece.data(), piece.size());
  }
  if (status.ok() && ::fsync(fd) != 0) status = Failed("fsync");
  mb_per_s = static_cast<double>(written) * 1.048576 / absl::ToDoubleSeconds(absl::Now() - begin);
  ::close(fd);
  return status;
}

absl::Status ReplaceSynced(const TrialFolder& folder) {
  const std::string fresh = folder / "fresh";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("open");
  absl::Status status = WriteAll(fd, "state", 5);
  if (status.ok() && ::fsync(fd) != 0) status = Failed("fsync");
  ::close(fd);
  if (status.ok() && ::rename(fresh.c_str(), (folder / "state").c_str()) != 0) status = Failed("rename");
  return status;
}

// Whether who opens the file for itself is kept out, as the lock of a run folder promises.
absl::Status TryLock(const std::string& path) {
  const int first = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (first < 0) return Failed("open");
  const int second = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  absl::Status status;
  if (second < 0 || ::flock(first, LOCK_EX | LOCK_NB) != 0) {
    status = Failed("flock");
  } else if (::flock(second, LOCK_EX | LOCK_NB) == 0) {
    status = absl::FailedPreconditionError("two took the same lock");
  }
  ::close(first);
  if (second >= 0) ::close(second);
  return status;
}

// As databases lock their folders.
absl::Status TryRecordLock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("open");
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const absl::Status status = ::fcntl(fd, F_SETLK, &whole) == 0 ? absl::OkStatus() : Failed("fcntl");
  ::close(fd);
  return status;
}

void TryReplacements(const TrialFolder& folder, const DiskTrial& trial, absl::Time deadline, DiskFacts& facts) {
  std::vector<absl::Duration> times;
  for (uint32_t i = 0; i < trial.replacements && facts.renames.ok() && (i == 0 || absl::Now() < deadline); ++i) {
    const absl::Time begin = absl::Now();
    facts.renames = ReplaceSynced(folder);
    times.push_back(absl::Now() - begin);
  }
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  facts.sync_median = times[times.size() / 2];
  facts.sync_max = times.back();
}

fs::path NearestFolder(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  while (!fs::is_directory(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

DiskFacts ProbeDisk(const std::string& purpose, const std::string& path, const DiskTrial& trial) {
  DiskFacts facts;
  facts.purpose = purpose;
  facts.path = path;
  const fs::path tried = NearestFolder(path);
  facts.tried = tried;
  struct statfs system = {};
  if (::statfs(tried.c_str(), &system) == 0) {
    facts.file_system = NameOf(static_cast<uint64_t>(system.f_type));
    facts.free_bytes = uint64_t{system.f_bavail} * static_cast<uint64_t>(system.f_bsize);
  }
  const absl::Time deadline = absl::Now() + trial.patience;
  absl::StatusOr<TrialFolder> folder = TrialFolder::Make(tried);
  facts.writable = folder.status();
  if (!folder.ok()) return facts;
  facts.writable = WriteSynced(*folder / "bytes", trial.megabytes, deadline, facts.write_mb_per_s);
  if (!facts.writable.ok()) return facts;
  TryReplacements(*folder, trial, deadline, facts);
  facts.locks = TryLock(*folder / "lock");
  facts.record_locks = TryRecordLock(*folder / "record");
  return facts;
}

}  // namespace slackline::cli::doctor
