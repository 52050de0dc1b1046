#include "cli/doctor/peer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace slackline::cli::doctor {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr uint32_t kFindingsMax = 1 << 20;
// The first round says how fast the link is, the second one takes as long as it was meant to.
constexpr uint32_t kFirstPieces = 16;

void Put(uint64_t value, size_t bytes, std::string& out) {
  for (size_t i = bytes; i-- > 0;) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t Get(const char* bytes, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

absl::Status SendText(const Socket& peer, const std::string& text, absl::Time deadline) {
  return peer.Send(text.data(), text.size(), deadline);
}

absl::Status SendPieces(const Socket& peer, uint32_t count, absl::Time deadline) {
  const std::vector<char> piece(kPieceBytes, 's');
  for (uint32_t i = 0; i < count; ++i) {
    if (absl::Status sent = peer.Send(piece.data(), piece.size(), deadline); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status TakePieces(const Socket& peer, uint32_t count, absl::Time deadline) {
  std::vector<char> piece(kPieceBytes);
  for (uint32_t i = 0; i < count; ++i) {
    if (absl::Status taken = peer.Receive(piece.data(), piece.size(), deadline); !taken.ok()) return taken;
  }
  return absl::OkStatus();
}

// The fastest of some: its clock is known best.
absl::Status Bounce(const Socket& peer, uint32_t bounces, absl::Time deadline, LinkFacts& facts) {
  facts.round_trip = absl::InfiniteDuration();
  for (uint32_t i = 0; i < bounces; ++i) {
    const absl::Time begin = absl::Now();
    char answer[9];
    absl::Status status = peer.Send("p", 1, deadline);
    if (status.ok()) status = peer.Receive(answer, sizeof(answer), deadline);
    if (!status.ok()) return status;
    const absl::Duration took = absl::Now() - begin;
    if (took >= facts.round_trip) continue;
    facts.round_trip = took;
    facts.clock_ahead = absl::FromUnixNanos(static_cast<int64_t>(Get(answer + 1, 8))) - (begin + took / 2);
  }
  return absl::OkStatus();
}

// How long so many pieces take, in one direction.
absl::StatusOr<absl::Duration> Pieces(const Socket& peer, char ask, uint32_t count, absl::Time deadline) {
  std::string request(1, ask);
  Put(count, 4, request);
  const absl::Time begin = absl::Now();
  absl::Status status = SendText(peer, request, deadline);
  char done = 0;
  if (status.ok()) status = ask == 'd' ? SendPieces(peer, count, deadline) : TakePieces(peer, count, deadline);
  if (status.ok() && ask == 'd') status = peer.Receive(&done, 1, deadline);
  if (!status.ok()) return status;
  return absl::Now() - begin;
}

absl::StatusOr<double> Throughput(const Socket& peer, char ask, const LinkTrial& trial, absl::Time deadline) {
  absl::StatusOr<absl::Duration> took = Pieces(peer, ask, kFirstPieces, deadline);
  if (!took.ok()) return took.status();
  const double a_second = kFirstPieces / std::max(1e-6, absl::ToDoubleSeconds(*took));
  const double most = static_cast<double>(trial.megabytes << 20) / kPieceBytes;
  const uint32_t count =
      static_cast<uint32_t>(std::clamp(a_second * absl::ToDoubleSeconds(trial.seconds), 1.0, std::max(1.0, most)));
  took = Pieces(peer, ask, count, deadline);
  if (!took.ok()) return took.status();
  return 1e-6 * count * kPieceBytes / std::max(1e-9, absl::ToDoubleSeconds(*took));
}

}  // namespace

absl::StatusOr<LinkFacts> MeasureLink(const Socket& peer, const LinkTrial& trial, absl::Time deadline) {
  LinkFacts facts;
  if (absl::Status status = Bounce(peer, trial.bounces, deadline, facts); !status.ok()) return status;
  const absl::StatusOr<double> to = Throughput(peer, 'd', trial, deadline);
  if (!to.ok()) return to.status();
  const absl::StatusOr<double> from = Throughput(peer, 'u', trial, deadline);
  if (!from.ok()) return from.status();
  facts.to_mb_per_s = *to;
  facts.from_mb_per_s = *from;
  return facts;
}

absl::StatusOr<std::string> AskFindings(const Socket& peer, absl::Time deadline) {
  char size_bytes[4];
  absl::Status status = peer.Send("f", 1, deadline);
  if (status.ok()) status = peer.Receive(size_bytes, sizeof(size_bytes), deadline);
  if (!status.ok()) return status;
  const uint64_t size = Get(size_bytes, sizeof(size_bytes));
  if (size > kFindingsMax) {
    return absl::OutOfRangeError(absl::StrCat("found ", size, " bytes of findings; allowed are ", kFindingsMax));
  }
  std::string findings(size, '\0');
  if (status = peer.Receive(findings.data(), findings.size(), deadline); !status.ok()) return status;
  return findings;
}

absl::Status EndLink(const Socket& peer, absl::Time deadline) { return peer.Send("q", 1, deadline); }

absl::Status AnswerLink(const Socket& peer, const std::string& findings, absl::Time deadline) {
  while (true) {
    char ask = 0;
    if (absl::Status status = peer.Receive(&ask, 1, deadline); !status.ok()) return status;
    uint32_t count = 0;
    if (ask == 'u' || ask == 'd') {
      char bytes[4];
      if (absl::Status status = peer.Receive(bytes, sizeof(bytes), deadline); !status.ok()) return status;
      count = static_cast<uint32_t>(Get(bytes, sizeof(bytes)));
    }
    absl::Status status;
    std::string answer;
    switch (ask) {
      case 'p':
        answer = "p";
        Put(static_cast<uint64_t>(absl::ToUnixNanos(absl::Now())), 8, answer);
        break;
      case 'u':
        status = SendPieces(peer, count, deadline);
        break;
      case 'd':
        status = TakePieces(peer, count, deadline);
        answer = "d";
        break;
      case 'f':
        Put(findings.size(), 4, answer);
        answer += findings;
        break;
      case 'q':
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("found the byte ", static_cast<int>(ask), "; allowed is p, u, d, f, q"));
    }
    if (status.ok()) status = SendText(peer, answer, deadline);
    if (!status.ok()) return status;
  }
}

}  // namespace slackline::cli::doctor
