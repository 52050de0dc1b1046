#include "common/security/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace slackline::security {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kTokenMin = 16;
constexpr size_t kTokenMax = 4096;

absl::Status Missing(const std::string& path, const char* what) {
  return absl::NotFoundError(
      absl::StrCat(path, ": ", what, "; `slackline credentials` makes such files (docs/security.md)"));
}

absl::Status CheckSecret(const std::string& path, const struct stat& file) {
  const mode_t mode = file.st_mode & 07777;
  const bool roots = file.st_uid == 0 && ::geteuid() != 0;
  if (file.st_uid != ::geteuid() && !roots) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": found a file of user ", file.st_uid,
                                                    "; allowed is one of user ", ::geteuid(),
                                                    ", who runs this, or of root"));
  }
  if ((mode & (roots ? 0137 : 0177)) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat("%s: found mode %04o; allowed is %s, since it is a secret", path,
                                                     mode, roots ? "0640 or less, as it is root's" : "0600 or less"));
}

// Whoever can write what is believed can have everything believed.
absl::Status CheckUnwritable(const std::string& path, const struct stat& file) {
  const mode_t mode = file.st_mode & 07777;
  if (file.st_uid != ::geteuid() && file.st_uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": found a file of user ", file.st_uid,
                                                    "; allowed is one of user ", ::geteuid(),
                                                    ", who runs this, or of root"));
  }
  if ((mode & 0022) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("%s: found mode %04o; allowed is one that only its owner may write", path, mode));
}

// Reads through the descriptor that was checked.
absl::StatusOr<std::string> ReadAll(const std::string& path, bool secret) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Missing(path, errno == ENOENT ? "found no such file" : "cannot read this file");
  struct stat status {};
  absl::Status allowed = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode)
                             ? absl::OkStatus()
                             : Missing(path, "found something else than a file");
  if (allowed.ok()) allowed = secret ? CheckSecret(path, status) : CheckUnwritable(path, status);
  std::string text;
  char piece[4096];
  ssize_t got = 0;
  while (allowed.ok() && text.size() <= kFileBytesMax && (got = ::read(file, piece, sizeof(piece))) > 0) {
    text.append(piece, static_cast<size_t>(got));
  }
  ::close(file);
  if (!allowed.ok()) return allowed;
  if (got < 0) return Missing(path, "cannot read this file");
  return text;
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  // Whatever the umask is.
  bool good = ::fchmod(file, 0600) == 0;
  good = good && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  return good ? absl::OkStatus() : absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path));
}

}  // namespace

std::string AuthorityPath(const std::string& folder) { return absl::StrCat(folder, "/ca.crt"); }
std::string AuthorityKeyPath(const std::string& folder) { return absl::StrCat(folder, "/ca.key"); }

KeyPair PathsOf(const std::string& folder, Role role) {
  return {absl::StrCat(folder, "/", RoleName(role), ".key"), absl::StrCat(folder, "/", RoleName(role), ".crt")};
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) { return ReadAll(path, /*secret=*/true); }
absl::StatusOr<std::string> ReadPublic(const std::string& path) { return ReadAll(path, /*secret=*/false); }

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecret(path);
  if (!text.ok()) return text;
  const std::string token(absl::StripTrailingAsciiWhitespace(*text));
  bool plain = token.size() >= kTokenMin && token.size() <= kTokenMax;
  for (const char letter : token) {
    plain =
        plain && (absl::ascii_isalnum(letter) || absl::string_view("-._~+/=").find(letter) != absl::string_view::npos);
  }
  if (plain) return token;
  // Nothing of what it says: this goes into logs.
  return absl::InvalidArgumentError(absl::StrCat(path, ": found ", token.size(),
                                                 " bytes that are no token; allowed is a line of ", kTokenMin, " to ",
                                                 kTokenMax, " letters, digits and -._~+/="));
}

absl::Status WriteSecret(const std::string& path, const std::string& text, bool replace) {
  if (!replace && ::access(path.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": found a file; allowed is none, or --force to replace it"));
  }
  const std::string unfinished = path + ".tmp";
  ::unlink(unfinished.c_str());
  if (absl::Status written = WriteWhole(unfinished, text); !written.ok()) return written;
  if (::rename(unfinished.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

}  // namespace slackline::security
