// Quoting for commands that people paste into a shell.
#pragma once

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace slackline::cli {

// Returns `text` as one word of a POSIX shell: unchanged if no character has a special meaning, otherwise in quotes.
inline std::string ShellWord(absl::string_view text) {
  bool plain = !text.empty() && text[0] != '-';
  for (const char c : text)
    plain = plain && (absl::ascii_isalnum(c) || absl::string_view("/._-+:,@%=").find(c) != text.npos);
  return plain ? std::string(text) : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace slackline::cli
