// What is wrong with a job file, collected so that one run of `slackline check` shows all of it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::job_file {

// Thread-safety: none.
class Mistakes {
 public:
  // "WHERE: KEY: found FOUND; allowed is ALLOWED". `where` is "FILE:LINE" or "--set K=V".
  void Add(const std::string& where, const std::string& key, const std::string& found, const std::string& allowed) {
    AddText(where, absl::StrCat(key, ": found ", found, "; allowed is ", allowed));
  }
  void AddText(const std::string& where, const std::string& text) {
    if (++count_ <= kShownMax) lines_.push_back(absl::StrCat(where, ": ", text));
  }

  // OK if there were none.
  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    std::string text = absl::StrJoin(lines_, "\n");
    if (count_ > kShownMax) absl::StrAppend(&text, "\n... and ", count_ - kShownMax, " more");
    return absl::InvalidArgumentError(text);
  }

 private:
  // Enough for a person; a hostile file does not fill the terminal.
  static constexpr size_t kShownMax = 50;

  size_t count_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace slackline::job_file
