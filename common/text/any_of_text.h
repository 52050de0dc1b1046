// Names the entries of a table in a message.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace slackline {

// Returns the names of the entries of `table` for which `has` is true, in their order: "a", "a or b", "a, b or c".
template <typename Table, typename Has>
std::string AnyOfText(const Table& table, Has&& has) {
  std::vector<absl::string_view> names;
  for (const auto& entry : table) {
    if (has(entry)) names.push_back(entry.name);
  }
  if (names.size() < 2) return absl::StrJoin(names, "");
  const absl::string_view last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

}  // namespace slackline
