#include "common/text/wrap_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace slackline {

size_t Columns(absl::string_view text) {
  size_t columns = 0;
  for (const char byte : text) columns += (byte & 0xC0) == 0x80 ? 0 : 1;
  return columns;
}

std::string WrapText(absl::string_view text, absl::string_view first, absl::string_view rest) {
  std::string lines, line(first);
  bool empty = true;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n\t"), absl::SkipEmpty())) {
    if (!empty && Columns(line) + 1 + Columns(word) > kTextColumns) {
      absl::StrAppend(&lines, line, "\n");
      line = std::string(rest);
      empty = true;
    }
    absl::StrAppend(&line, empty ? "" : " ", word);
    empty = false;
  }
  return absl::StrCat(lines, line, "\n");
}

}  // namespace slackline
