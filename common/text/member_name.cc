#include "common/text/member_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace slackline {
namespace {

constexpr size_t kMemberNameMax = 64;

bool IsPlain(char letter) { return absl::ascii_isalnum(letter) || letter == '.' || letter == '_' || letter == '-'; }

}  // namespace

std::string MemberNameMistake(const std::string& name) {
  if (!name.empty() && name.size() <= kMemberNameMax && std::all_of(name.begin(), name.end(), IsPlain)) return "";
  return absl::StrCat("found the name '", absl::Utf8SafeCEscape(name), "'; allowed are 1 to ", kMemberNameMax,
                      " letters, digits, '.', '_' and '-'");
}

}  // namespace slackline
