#include "worker/client/silence_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::worker {

SilenceWatch::SilenceWatch(absl::Span<const ServerInfo> servers, absl::Duration notice_every, Notice notice)
    : notice_every_(notice_every), notice_(std::move(notice)) {
  if (!notice_) notice_ = [](const std::string&) {};
  peers_.resize(servers.size());
  for (size_t i = 0; i < servers.size(); ++i) Moved(i, servers[i]);
}

void SilenceWatch::Add(const ServerInfo& server, absl::Time now) {
  Peer& peer = peers_.emplace_back();
  peer.heard = now;
  peer.notice_at = now + notice_every_;
  Moved(peers_.size() - 1, server);
}

void SilenceWatch::Moved(size_t server, const ServerInfo& info) {
  peers_[server].name = absl::StrCat(info.name, " (", info.address, ")");
}

void SilenceWatch::Begin(const std::string& what, absl::Duration timeout, absl::Time now) {
  what_ = what;
  timeout_ = timeout;
  for (Peer& peer : peers_) {
    peer.heard = now;
    peer.notice_at = now + notice_every_;
    peer.waiting.clear();
  }
  next_ = now + std::min(timeout_, notice_every_);
}

void SilenceWatch::Heard(size_t server, absl::Time now) {
  peers_[server].heard = now;
  peers_[server].waiting.clear();
}

void SilenceWatch::HeardWaiting(size_t server, const std::string& message, absl::Time now) {
  Peer& peer = peers_[server];
  peer.heard = now;
  const bool new_reason = peer.waiting.empty();
  peer.waiting = message;
  // Each of a server's shards says so: one line is enough.
  if (!new_reason && now < peer.notice_at) return;
  peer.notice_at = now + notice_every_;
  notice_(absl::StrCat(what_, ": ", peer.name, ": ", message));
}

void SilenceWatch::StreamOpened(size_t server, const std::string& way) {
  Peer& peer = peers_[server];
  notice_(absl::StrCat("stream to ", peer.name, " open ", peer.ever_open ? "again " : "", "over ", way));
  peer.open = true;
  peer.ever_open = true;
  peer.broken.clear();
}

void SilenceWatch::StreamBroken(size_t server, const absl::Status& status) {
  Peer& peer = peers_[server];
  // Attempts that fail one after the other are one event.
  if (peer.broken.empty()) {
    notice_(absl::StrCat(peer.open ? "stream to " : "no stream to ", peer.name, peer.open ? " broken: " : ": ",
                         status.ToString(), "; trying again"));
  }
  peer.open = false;
  peer.broken = status.ToString();
}

std::string SilenceWatch::Describe(const Peer& peer, absl::Span<const ShardId> shards, absl::Time now) const {
  std::string text = absl::StrCat(
      what_, ": no word from ", peer.name, " for ",
      absl::FormatDuration(absl::Trunc(now - peer.heard, absl::Milliseconds(1))), "; awaited from it: shard ",
      absl::StrJoin(shards, ", ", [](std::string* out, ShardId shard) { absl::StrAppend(out, shard.value()); }));
  if (!peer.open) absl::StrAppend(&text, "; no stream to it: ", peer.broken.empty() ? "not answered" : peer.broken);
  if (!peer.waiting.empty()) absl::StrAppend(&text, "; its last message: ", peer.waiting);
  return text;
}

absl::Status SilenceWatch::Check(absl::Span<const std::vector<ShardId>> awaited, absl::Time now) {
  next_ = absl::InfiniteFuture();
  std::vector<std::string> silent;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (awaited[i].empty()) continue;
    Peer& peer = peers_[i];
    if (now >= peer.heard + timeout_) {
      silent.push_back(Describe(peer, awaited[i], now));
      continue;
    }
    if (now >= std::max(peer.notice_at, peer.heard + notice_every_)) {
      notice_(Describe(peer, awaited[i], now));
      peer.notice_at = now + notice_every_;
    }
    next_ = std::min({next_, peer.heard + timeout_, std::max(peer.notice_at, peer.heard + notice_every_)});
  }
  if (silent.empty()) return absl::OkStatus();
  next_ = absl::InfiniteFuture();
  return absl::DeadlineExceededError(absl::StrJoin(silent, "; "));
}

}  // namespace slackline::worker
