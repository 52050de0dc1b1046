// Two doctors that talk over TCP: how far apart they are, in time and in bytes a second, and what the other one has
// found.
//
//   asks    := 'p'  bounce: the answer is 'p' and the clock of who answers, i64be nanoseconds
//            | 'u' count:u32be  send so many pieces
//            | 'd' count:u32be piece{count}  take them; the answer is 'd'
//            | 'f'  what was found: the answer is size:u32be bytes{size}
//            | 'q'  the end
//   piece   := 64 KiB of anything
//   hello   := token{16}   the first that who answers says
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/socket.h"

namespace slackline::cli::doctor {

inline constexpr size_t kTokenBytes = 16;

struct LinkTrial {
  uint32_t bounces = 50;
  // Of bytes in each direction: so long, and so many at most.
  absl::Duration seconds = absl::Milliseconds(500);
  uint64_t megabytes = 256;
};

// The end that asks.
absl::StatusOr<LinkFacts> MeasureLink(const Socket& peer, const LinkTrial& trial, absl::Time deadline);
absl::StatusOr<std::string> AskFindings(const Socket& peer, absl::Time deadline);
absl::Status EndLink(const Socket& peer, absl::Time deadline);

// The end that answers, until it is told that it is the end.
absl::Status AnswerLink(const Socket& peer, const std::string& findings, absl::Time deadline);

}  // namespace slackline::cli::doctor
