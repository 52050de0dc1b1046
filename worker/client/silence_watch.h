// Watches how long each server has been silent while something is awaited from it, and names who is waited for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/client/client.h"

namespace slackline::worker {

// Servers are numbered from 0 in the order given.
//
// Thread-safety: none.
class SilenceWatch {
 public:
  using Notice = std::function<void(const std::string&)>;

  // `notice_every`: silence after which a notice is given, and again after as much.
  SilenceWatch(absl::Span<const ServerInfo> servers, absl::Duration notice_every, Notice notice);

  // A request begins: a server may now be silent for `timeout`.
  void Begin(const std::string& what, absl::Duration timeout, absl::Time now);
  // The server has sent something that moves the request on.
  void Heard(size_t server, absl::Time now);
  // The server says that a gate is closed: it lives, and `message` names whom all wait for.
  void HeardWaiting(size_t server, const std::string& message, absl::Time now);
  // `way`: "TCP".
  void StreamOpened(size_t server, const std::string& way);
  void StreamBroken(size_t server, const absl::Status& status);
  // One more server, with the next number.
  void Add(const ServerInfo& server, absl::Time now);
  // The server is somewhere else.
  void Moved(size_t server, const ServerInfo& info);

  // Gives notices that are due; `awaited` holds, for each server, the shards that are awaited from it.
  //   kDeadlineExceeded  a server was silent for the timeout; names its shards and whom it waited for last
  absl::Status Check(absl::Span<const std::vector<ShardId>> awaited, absl::Time now);
  // When Check() may have something new to say.
  absl::Time next() const { return next_; }

  // "ps-1 (127.0.0.1:4000)".
  const std::string& name(size_t server) const { return peers_[server].name; }

 private:
  struct Peer {
    std::string name;
    absl::Time heard;
    absl::Time notice_at;
    bool ever_open = false;
    bool open = false;
    std::string broken;   // why its stream is down
    std::string waiting;  // the last Waiting of this request
  };

  std::string Describe(const Peer& peer, absl::Span<const ShardId> shards, absl::Time now) const;

  const absl::Duration notice_every_;
  Notice notice_;
  std::vector<Peer> peers_;
  std::string what_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  absl::Time next_ = absl::InfiniteFuture();
};

}  // namespace slackline::worker
