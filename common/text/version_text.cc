#include "common/text/version_text.h"

#include "absl/strings/str_cat.h"
#include "version.h"

namespace slackline {

std::string VersionText(absl::string_view program) {
  return absl::StrCat(program, " ", kVersion, " (", kCommit, ", ", kCompiler, ", ", kBuildType, ")");
}

std::string BuildName() { return absl::StrCat(kVersion, " (", kCommit, ")"); }

std::string VersionNumber() { return std::string(kVersion); }

}  // namespace slackline
