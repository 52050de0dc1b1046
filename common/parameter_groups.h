// Which group of settings a tensor belongs to, by its name.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace slackline {

// One group of optimizer.groups, as far as it says which tensors are trained.
struct ParameterGroupRule {
  // `*` stands for any text, `?` for one letter.
  std::string match;
  bool frozen = false;
};

// The first rule that matches the name; nullopt: none does.
std::optional<size_t> GroupOf(const std::vector<ParameterGroupRule>& rules, const std::string& name);

}  // namespace slackline
