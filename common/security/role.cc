#include "common/security/role.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace slackline::security {
namespace {

constexpr char kUriBegin[] = "spiffe://slackline/";
constexpr size_t kNameBytesMax = 100;

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kScheduler:
      return "scheduler";
    case Role::kServer:
      return "server";
    case Role::kWorker:
      return "worker";
    case Role::kOperator:
      return "operator";
  }
  return "?";
}

std::string Roles::ToString() const {
  std::vector<std::string> names;
  for (const Role role : kRoles) {
    if (Has(role)) names.push_back(RoleName(role));
  }
  return absl::StrJoin(names, ", ");
}

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && text != "." && text != ".." &&
         absl::c_all_of(text, [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

std::string Identity::ToUri() const {
  return absl::StrCat(kUriBegin, job, "/", RoleName(role), name.empty() ? "" : "/", name);
}

std::optional<Identity> Identity::FromUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, kUriBegin)) return std::nullopt;
  const size_t slash = uri.find('/');
  if (slash == absl::string_view::npos || slash == 0) return std::nullopt;
  const std::string job(uri.substr(0, slash));
  uri.remove_prefix(slash + 1);
  for (const Role role : kRoles) {
    if (uri == RoleName(role)) return Identity{job, role};
  }
  if (!absl::ConsumePrefix(&uri, RoleName(Role::kWorker)) || !absl::ConsumePrefix(&uri, "/") || !IsName(uri)) {
    return std::nullopt;
  }
  return Identity{job, Role::kWorker, std::string(uri)};
}

}  // namespace slackline::security
