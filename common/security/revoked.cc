#include "common/security/revoked.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/log/logging.h"
#include "common/security/files.h"
#include "common/security/role.h"
#include "common/time/clock.h"

namespace slackline::security {
namespace {

// Returns a text that differs for another file, or after a change; empty if there is no file.
std::string VersionOf(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return "";
  return absl::StrCat(about.st_ino, " ", about.st_size, " ", about.st_mtim.tv_sec, " ", about.st_mtim.tv_nsec);
}

}  // namespace

std::string RevokedPath(const std::string& folder) { return absl::StrCat(folder, "/revoked"); }

absl::StatusOr<std::set<std::string>> ReadRevoked(const std::string& path) {
  if (VersionOf(path).empty()) return std::set<std::string>();
  const absl::StatusOr<std::string> text = ReadPublic(path);
  if (!text.ok()) return text.status();
  std::set<std::string> names;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipWhitespace())) {
    if (!IsName(line)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found a line that is no name; allowed are ", kNameAllowed, ", a line for each worker"));
    }
    names.emplace(line);
  }
  return names;
}

absl::StatusOr<std::shared_ptr<RevokedNames>> RevokedNames::Open(const std::string& folder) {
  std::shared_ptr<RevokedNames> names(new RevokedNames(RevokedPath(folder)));
  absl::MutexLock lock(&names->mutex_);
  if (absl::Status status = names->Look(); !status.ok()) return status;
  return names;
}

absl::Status RevokedNames::Look() {
  looked_ = SteadyTime().Now();
  std::string version = VersionOf(path_);
  if (version == version_) return absl::OkStatus();
  version_ = std::move(version);
  if (version_.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": found no such file any more; needed is a list, if only an empty one"));
  }
  absl::StatusOr<std::set<std::string>> names = ReadRevoked(path_);
  if (!names.ok()) return names.status();
  names_ = {names->begin(), names->end()};
  log::Info("security: ", path_, " revokes the certificates of ",
            names_.empty() ? "no worker" : absl::StrJoin(names_, ", "));
  return absl::OkStatus();
}

bool RevokedNames::Has(absl::string_view name) {
  absl::MutexLock lock(&mutex_);
  if (SteadyTime().Now() - looked_ >= kLookEvery) {
    if (const absl::Status status = Look(); !status.ok()) {
      log::Error("security: ", status.message(),
                 ". Until then the names before stay revoked: ", absl::StrJoin(names_, ", "));
    }
  }
  return names_.contains(name);
}

}  // namespace slackline::security
