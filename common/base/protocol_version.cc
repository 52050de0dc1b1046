#include "common/base/protocol_version.h"

#include "absl/strings/str_cat.h"
#include "common/text/utf8.h"
#include "common/text/version_text.h"

namespace slackline {
namespace {

// A peer chooses its text.
constexpr size_t kBuildShown = 60;

std::string Readable(const ProtocolVersion& version) {
  const std::string build = OneLine(version.build.substr(0, kBuildShown));
  return absl::StrCat(version.major, ".", version.minor, build.empty() ? "" : absl::StrCat(" (slackline ", build, ")"));
}

}  // namespace

ProtocolVersion OwnProtocol() { return {.build = BuildName()}; }

absl::Status CheckProtocol(absl::string_view who, const ProtocolVersion& theirs, const ProtocolVersion& own) {
  if (theirs.major == own.major) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(who, " speaks protocol ", Readable(theirs), "; this process speaks ", Readable(own),
                   ". Processes with different major versions cannot work together: run all processes of a job with "
                   "the programs of one version"));
}

std::string NewerProtocol(absl::string_view who, const ProtocolVersion& theirs, const ProtocolVersion& own) {
  if (theirs.major != own.major || theirs.minor <= own.minor) return "";
  return absl::StrCat(who, " speaks protocol ", Readable(theirs), ", which is newer than ", Readable(own),
                      " here; what is new in it is ignored");
}

}  // namespace slackline
