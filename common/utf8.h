// Text from elsewhere (logs, exceptions, names of files), made fit for messages.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

// Free text in a message of ours is at most so long: enough for the last words of a process.
inline constexpr size_t kFreeTextBytesMax = 8 << 10;

// Bytes of the UTF-8 sequence that `text` begins with; 0 if it begins with none (overlong, surrogate, cut short).
// Requires: not empty.
size_t Utf8SequenceBytes(absl::string_view text);

// Whether `text` is UTF-8, which protobuf demands of every `string` field: a receiver refuses a message with any other.
bool IsUtf8(absl::string_view text);

// `text` with U+FFFD in the place of every byte that is not UTF-8, cut between two letters to at most `bytes_max`
// bytes. Requires: bytes_max >= 3.
std::string ValidText(absl::string_view text, size_t bytes_max = kFreeTextBytesMax);

// `text` with its control characters escaped ("\n", "\x1b"): it is one line and gives a terminal no commands.
std::string OneLine(absl::string_view text);

}  // namespace slackline
