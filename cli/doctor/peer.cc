#include "cli/doctor/peer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace slackline::cli::doctor {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr uint32_t kTextMax = 1 << 20;
constexpr double kBytesPerMb = 1e6;
// The first round says how fast the link is, the second one takes as long as it was meant to.
constexpr uint32_t kFirstPieces = 16;
// Of each of many pairs.
constexpr LinkTrial kPairTrial = {.bounces = 50, .seconds = absl::Milliseconds(200), .megabytes = 256};

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

std::string FramedText(const std::string& text) {
  std::string out;
  Put(text.size(), 4, out);
  return out + text;
}

absl::StatusOr<std::string> ReceiveText(const Socket& peer, absl::Time deadline) {
  char size_bytes[4];
  if (absl::Status status = peer.Receive(size_bytes, sizeof(size_bytes), deadline); !status.ok()) return status;
  const uint64_t size = Get(size_bytes, sizeof(size_bytes));
  if (size > kTextMax) {
    return absl::OutOfRangeError(absl::StrCat("found a text of ", size, " bytes; allowed are ", kTextMax));
  }
  std::string text(size, '\0');
  if (absl::Status status = peer.Receive(text.data(), text.size(), deadline); !status.ok()) return status;
  return text;
}

std::string Outcome(const absl::StatusOr<LinkFacts>& link) {
  if (!link.ok()) return absl::StrCat("e", FramedText(std::string(link.status().message())));
  std::string out = "k";
  Put(static_cast<uint64_t>(absl::ToInt64Nanoseconds(link->round_trip)), 8, out);
  for (const double mb_per_s : {link->to_mb_per_s, link->from_mb_per_s}) {
    Put(static_cast<uint64_t>(mb_per_s * kBytesPerMb), 8, out);
  }
  return out;
}

absl::StatusOr<LinkFacts> ReceiveOutcome(const Socket& peer, absl::Time deadline) {
  char kind = 0;
  if (absl::Status status = peer.Receive(&kind, 1, deadline); !status.ok()) return status;
  if (kind == 'e') {
    const absl::StatusOr<std::string> why = ReceiveText(peer, deadline);
    return why.ok() ? absl::UnavailableError(*why) : why.status();
  }
  if (kind != 'k') {
    return absl::InvalidArgumentError(absl::StrCat("found the byte ", static_cast<int>(kind), "; allowed is k, e"));
  }
  char bytes[24];
  if (absl::Status status = peer.Receive(bytes, sizeof(bytes), deadline); !status.ok()) return status;
  LinkFacts facts;
  facts.round_trip = absl::Nanoseconds(static_cast<int64_t>(Get(bytes, 8)));
  facts.to_mb_per_s = static_cast<double>(Get(bytes + 8, 8)) / kBytesPerMb;
  facts.from_mb_per_s = static_cast<double>(Get(bytes + 16, 8)) / kBytesPerMb;
  return facts;
}

// The next peer that comes, if it knows the token.
absl::StatusOr<LinkFacts> TakePeer(const PeerDesk& desk) {
  const absl::Time deadline = absl::Now() + kPairPatience;
  if (desk.listener == nullptr) return absl::FailedPreconditionError("listens for nobody");
  while (true) {
    const absl::StatusOr<Socket> next = desk.listener->Accept(deadline);
    if (!next.ok()) return absl::Status(next.status().code(), "the other node has not come");
    // One that came too late for an earlier pair has left again.
    if (SaysToken(*next, desk.token, deadline) && AnswerLink(*next, {}, deadline).ok()) return LinkFacts();
  }
}

absl::StatusOr<LinkFacts> MeasurePeer(const std::string& where, const PeerDesk& desk) {
  const absl::Time deadline = absl::Now() + kPairPatience;
  const absl::StatusOr<Socket> socket = Socket::Connect(where, deadline);
  if (!socket.ok()) return socket.status();
  if (absl::Status status = SendText(*socket, desk.token, deadline); !status.ok()) return status;
  absl::StatusOr<LinkFacts> link = MeasureLink(*socket, kPairTrial, deadline);
  if (absl::Status ended = EndLink(*socket, deadline); link.ok() && !ended.ok()) return ended;
  return link;
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

absl::StatusOr<LinkFacts> MeasureClock(const Socket& peer, uint32_t bounces, absl::Time deadline) {
  LinkFacts facts;
  if (absl::Status status = Bounce(peer, bounces, deadline, facts); !status.ok()) return status;
  return facts;
}

absl::StatusOr<std::string> AskFindings(const Socket& peer, absl::Time deadline) {
  if (absl::Status status = peer.Send("f", 1, deadline); !status.ok()) return status;
  return ReceiveText(peer, deadline);
}

absl::StatusOr<std::string> AskWhere(const Socket& peer, absl::Time deadline) {
  if (absl::Status status = peer.Send("w", 1, deadline); !status.ok()) return status;
  return ReceiveText(peer, deadline);
}

absl::Status BeginPair(const Socket& guest, const Socket& host, const std::string& where, absl::Time deadline) {
  if (absl::Status status = host.Send("a", 1, deadline); !status.ok()) return status;
  return SendText(guest, absl::StrCat("l", FramedText(where)), deadline);
}

absl::StatusOr<LinkFacts> EndPair(const Socket& guest, const Socket& host, absl::Time deadline) {
  absl::StatusOr<LinkFacts> measured = ReceiveOutcome(guest, deadline);
  // Both have to have said it before they are asked for anything else.
  const absl::StatusOr<LinkFacts> taken = ReceiveOutcome(host, deadline);
  if (measured.ok() && !taken.ok()) return taken.status();
  return measured;
}

absl::Status EndLink(const Socket& peer, absl::Time deadline) { return peer.Send("q", 1, deadline); }

bool SaysToken(const Socket& peer, const std::string& token, absl::Time deadline) {
  std::string said(kTokenBytes, '\0');
  return peer.Receive(said.data(), said.size(), deadline).ok() && said == token;
}

absl::Status AnswerLink(const Socket& peer, const PeerDesk& desk, absl::Time deadline) {
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
        answer = FramedText(desk.findings);
        break;
      case 'w':
        answer = FramedText(desk.listener == nullptr ? "" : desk.listener->Address());
        break;
      case 'a':
        answer = Outcome(TakePeer(desk));
        break;
      case 'l': {
        const absl::StatusOr<std::string> where = ReceiveText(peer, deadline);
        if (!where.ok()) return where.status();
        answer = Outcome(MeasurePeer(*where, desk));
        break;
      }
      case 'q':
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("found the byte ", static_cast<int>(ask), "; allowed is p, u, d, f, w, a, l, q"));
    }
    if (status.ok()) status = SendText(peer, answer, deadline);
    if (!status.ok()) return status;
  }
}

}  // namespace slackline::cli::doctor
