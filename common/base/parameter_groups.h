// Assigns tensors to groups of settings, by name.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline {

// The part of a group of optimizer.groups that decides which tensors are trained.
struct ParameterGroupRule {
  // Pattern of names: `*` stands for any text, `?` for one letter.
  std::string match;
  bool frozen = false;
};

// Returns whether `name` matches `pattern`. `*` stands for any text, `?` for one letter (of ASCII; otherwise one byte),
// and every other character for itself.
bool MatchesName(absl::string_view pattern, absl::string_view name);

// Returns "a, b, c and 40 more", for messages.
std::string FirstNames(absl::Span<const std::string> names);

// Returns, for messages, the reason why rule `unused` is not the first match of any name.
std::string WhyUnused(const std::vector<ParameterGroupRule>& rules, size_t unused, absl::Span<const std::string> names);

// Returns the index of the first rule that matches the name; nullopt if none does.
std::optional<size_t> GroupOf(const std::vector<ParameterGroupRule>& rules, const std::string& name);

}  // namespace slackline
