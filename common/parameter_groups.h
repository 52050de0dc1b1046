// Which group of settings a tensor belongs to, by its name.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline {

// One group of optimizer.groups, as far as it says which tensors are trained.
struct ParameterGroupRule {
  // `*` stands for any text, `?` for one letter.
  std::string match;
  bool frozen = false;
};

// `*` in the pattern stands for any text, `?` for one letter (of ASCII; else one byte), all else for itself.
bool MatchesName(absl::string_view pattern, absl::string_view name);

// "a, b, c and 40 more", for messages.
std::string FirstNames(absl::Span<const std::string> names);

// Of a rule that is the first to match no name: why, for messages.
std::string WhyUnused(const std::vector<ParameterGroupRule>& rules, size_t unused, absl::Span<const std::string> names);

// The first rule that matches the name; nullopt: none does.
std::optional<size_t> GroupOf(const std::vector<ParameterGroupRule>& rules, const std::string& name);

}  // namespace slackline
