// Makes text from other sources (logs, exceptions, names of files) valid for messages.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

// Largest size of free text in our messages: enough for the last words of a process.
inline constexpr size_t kFreeTextBytesMax = 8 << 10;

// Returns the length of the UTF-8 sequence at the beginning of `text`; 0 if there is none (overlong, surrogate, cut
// short).
// Requires: not empty.
size_t Utf8SequenceBytes(absl::string_view text);

// Returns whether `text` is UTF-8, which protobuf requires of every `string` field: a receiver refuses a message with
// any other text.
bool IsUtf8(absl::string_view text);

// Returns `text` with U+FFFD in place of every byte that is not UTF-8, cut between two characters to at most
// `bytes_max` bytes. Requires: bytes_max >= 3.
std::string ValidText(absl::string_view text, size_t bytes_max = kFreeTextBytesMax);

// Returns `text` with its control characters escaped ("\n", "\x1b"), so that it is one line and cannot send commands to
// a terminal.
std::string OneLine(absl::string_view text);

}  // namespace slackline
