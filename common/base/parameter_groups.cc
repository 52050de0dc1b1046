#include "common/base/parameter_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline {
namespace {

constexpr size_t kNamesShown = 10;

}  // namespace

bool MatchesName(absl::string_view pattern, absl::string_view name) {
  size_t p = 0, n = 0;
  // Where the last `*` is, and how much of the name it stands for is tried from there on.
  size_t star = absl::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == absl::string_view::npos;
}

std::string FirstNames(absl::Span<const std::string> names) {
  const absl::Span<const std::string> shown = names.first(std::min(names.size(), kNamesShown));
  const std::string more =
      shown.size() < names.size() ? absl::StrCat(" and ", names.size() - shown.size(), " more") : "";
  return absl::StrCat(absl::StrJoin(shown, ", "), more);
}

std::string WhyUnused(const std::vector<ParameterGroupRule>& rules, size_t unused,
                      absl::Span<const std::string> names) {
  const std::string found = absl::StrCat("optimizer.groups[", unused, "].match: found \"", rules[unused].match, "\", ");
  std::vector<std::string> taken;
  for (const std::string& name : names) {
    if (MatchesName(rules[unused].match, name)) taken.push_back(name);
  }
  if (taken.empty()) {
    return absl::StrCat(found,
                        "which matches none of the parameters (* stands for any text, ? for one letter); they are ",
                        FirstNames(names));
  }
  return absl::StrCat(found, "but groups before it match all that it does; allowed is an earlier place in the list: ",
                      FirstNames(taken));
}

std::optional<size_t> GroupOf(const std::vector<ParameterGroupRule>& rules, const std::string& name) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (MatchesName(rules[i].match, name)) return i;
  }
  return std::nullopt;
}

}  // namespace slackline
