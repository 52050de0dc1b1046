#include "common/security/role.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace slackline::security {
namespace {

constexpr char kUriBegin[] = "spiffe://slackline/";

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

std::string Identity::ToUri() const { return absl::StrCat(kUriBegin, job, "/", RoleName(role)); }

std::optional<Identity> Identity::FromUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, kUriBegin)) return std::nullopt;
  const size_t slash = uri.find('/');
  if (slash == absl::string_view::npos || slash == 0) return std::nullopt;
  for (const Role role : kRoles) {
    if (uri.substr(slash + 1) == RoleName(role)) return Identity{std::string(uri.substr(0, slash)), role};
  }
  return std::nullopt;
}

}  // namespace slackline::security
