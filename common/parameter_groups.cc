#include "common/parameter_groups.h"

#include <fnmatch.h>

namespace slackline {

std::optional<size_t> GroupOf(const std::vector<ParameterGroupRule>& rules, const std::string& name) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (fnmatch(rules[i].match.c_str(), name.c_str(), 0) == 0) return i;
  }
  return std::nullopt;
}

}  // namespace slackline
