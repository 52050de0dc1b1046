// The mistakes in a job file, collected so that one run of `slackline check` shows all of them.
#pragma once

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace slackline::job_file {

// Thread-safety: none.
class Mistakes {
 public:
  // Adds "WHERE: KEY: found FOUND; allowed is ALLOWED". `where` is "FILE:LINE" or "--set K=V".
  void Add(const std::string& where, const std::string& key, const std::string& found, const std::string& allowed) {
    AddText(where, absl::StrCat(key, ": found ", found, "; allowed is ", allowed));
  }
  void AddText(const std::string& where, const std::string& text) {
    if (++count_ <= kShownMax) lines_.push_back(absl::StrCat(where, ": ", text));
  }

  // Returns whether one of the shown mistakes is about `key` or a key below it.
  bool Has(const std::string& key) const {
    const auto names = [&key](const std::string& line, absl::string_view before) {
      const size_t at = line.find(absl::StrCat(before, key));
      const size_t end = at + before.size() + key.size();
      return at != std::string::npos && end < line.size() && absl::StrContains(":.[", line[end]);
    };
    return absl::c_any_of(lines_, [&](const std::string& line) { return names(line, ": ") || names(line, " key '"); });
  }

  // Returns OK if there are no mistakes.
  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    std::string text = absl::StrJoin(lines_, "\n");
    if (count_ > kShownMax) absl::StrAppend(&text, "\n... and ", count_ - kShownMax, " more");
    return absl::InvalidArgumentError(text);
  }

 private:
  // Enough for a person. The limit keeps a hostile file from filling the terminal.
  static constexpr size_t kShownMax = 50;

  size_t count_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace slackline::job_file
