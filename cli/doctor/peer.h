// Protocol of two doctors that talk over TCP. It measures the link between them (time and bytes a second) and transfers
// findings.
//
//   asks    := 'p'  bounce: the answer is 'p' and the clock of the answering side, i64be nanoseconds
//            | 'u' count:u32be  send `count` pieces
//            | 'd' count:u32be piece{count}  take these pieces; the answer is 'd'
//            | 'f'  findings: the answer is text
//            | 'w'  address at which the answering side listens for other peers: the answer is text, HOST:PORT;
//                   empty: it does not listen
//            | 'a'  accept one peer at that address, and answer it until its end: the answer is outcome
//            | 'l' text  measure the link with the peer that listens at the address `text`: the answer is outcome
//            | 'q'  the end
//   text    := size:u32be bytes{size}
//   outcome := 'k' nanoseconds:u64be to:u64be from:u64be   round trip; bytes a second to the peer, and from it; all
//              three are 0 in the answer to 'a'
//            | 'e' text        reason of a failure
//   piece   := 64 KiB of any bytes
//   hello   := token{16}   first bytes from the side that connects
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/socket.h"

namespace slackline::cli::doctor {

inline constexpr size_t kTokenBytes = 16;
// Timeout for the measurement of one link between two peers.
inline constexpr absl::Duration kPairPatience = absl::Seconds(15);

struct LinkTrial {
  uint32_t bounces = 50;
  // Limits of the transfer in each direction: its duration, and its size in MiB.
  absl::Duration seconds = absl::Milliseconds(500);
  uint64_t megabytes = 256;
};

// Measures the link; called by the end that asks.
absl::StatusOr<LinkFacts> MeasureLink(const Socket& peer, const LinkTrial& trial, absl::Time deadline);
// Measures only the round trip and the clock.
absl::StatusOr<LinkFacts> MeasureClock(const Socket& peer, uint32_t bounces, absl::Time deadline);
absl::StatusOr<std::string> AskFindings(const Socket& peer, absl::Time deadline);
// Returns HOST:PORT at which the peer listens for other peers; empty: it does not listen.
absl::StatusOr<std::string> AskWhere(const Socket& peer, absl::Time deadline);
// Measure the link between two peers: `host` accepts `guest`, which connects to `where` and measures. Each BeginPair()
// is followed by one EndPair() with the same two peers.
absl::Status BeginPair(const Socket& guest, const Socket& host, const std::string& where, absl::Time deadline);
absl::StatusOr<LinkFacts> EndPair(const Socket& guest, const Socket& host, absl::Time deadline);
absl::Status EndLink(const Socket& peer, absl::Time deadline);

// Data with which AnswerLink() answers.
struct PeerDesk {
  std::string findings = {};
  std::string token = {};
  // Listener for other peers; null: the peer does not listen.
  const Socket* listener = nullptr;
};

// Answers the peer's questions until the peer says that it is the end.
absl::Status AnswerLink(const Socket& peer, const PeerDesk& desk, absl::Time deadline);

// True if the first bytes from the side that connected are the token.
bool SaysToken(const Socket& peer, const std::string& token, absl::Time deadline);

}  // namespace slackline::cli::doctor
