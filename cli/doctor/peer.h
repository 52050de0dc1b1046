// Two doctors that talk over TCP: how far apart they are, in time and in bytes a second, and what the other one has
// found.
//
//   asks    := 'p'  bounce: the answer is 'p' and the clock of who answers, i64be nanoseconds
//            | 'u' count:u32be  send so many pieces
//            | 'd' count:u32be piece{count}  take them; the answer is 'd'
//            | 'f'  what was found: the answer is text
//            | 'w'  where who answers listens for other peers: the answer is text, HOST:PORT, empty: nowhere
//            | 'a'  take one peer there, and answer it until its end: the answer is outcome
//            | 'l' text  measure the link with the peer that listens there: the answer is outcome
//            | 'q'  the end
//   text    := size:u32be bytes{size}
//   outcome := 'k' nanoseconds:u64be to:u64be from:u64be   round trip; bytes a second to the peer, and from it; after
//              'a' all 0
//            | 'e' text        why not
//   piece   := 64 KiB of anything
//   hello   := token{16}   the first that who connects says
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/socket.h"

namespace slackline::cli::doctor {

inline constexpr size_t kTokenBytes = 16;
// Of one link between two peers.
inline constexpr absl::Duration kPairPatience = absl::Seconds(15);

struct LinkTrial {
  uint32_t bounces = 50;
  // Of bytes in each direction: so long, and so many at most.
  absl::Duration seconds = absl::Milliseconds(500);
  uint64_t megabytes = 256;
};

// The end that asks.
absl::StatusOr<LinkFacts> MeasureLink(const Socket& peer, const LinkTrial& trial, absl::Time deadline);
// Only the round trip and the clock.
absl::StatusOr<LinkFacts> MeasureClock(const Socket& peer, uint32_t bounces, absl::Time deadline);
absl::StatusOr<std::string> AskFindings(const Socket& peer, absl::Time deadline);
// HOST:PORT; empty: it listens for nobody.
absl::StatusOr<std::string> AskWhere(const Socket& peer, absl::Time deadline);
// Of two peers: `host` takes `guest`, which connects to `where` and measures the link. A call of Begin is followed by
// one of End with the same two.
absl::Status BeginPair(const Socket& guest, const Socket& host, const std::string& where, absl::Time deadline);
absl::StatusOr<LinkFacts> EndPair(const Socket& guest, const Socket& host, absl::Time deadline);
absl::Status EndLink(const Socket& peer, absl::Time deadline);

// What who answers has.
struct PeerDesk {
  std::string findings = {};
  std::string token = {};
  // Where other peers are taken; null: nowhere.
  const Socket* listener = nullptr;
};

// The end that answers, until it is told that it is the end.
absl::Status AnswerLink(const Socket& peer, const PeerDesk& desk, absl::Time deadline);

// Whether who connected says the token first.
bool SaysToken(const Socket& peer, const std::string& token, absl::Time deadline);

}  // namespace slackline::cli::doctor
