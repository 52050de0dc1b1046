// SilenceWatch: measures how long each server is silent while the worker awaits something from it, and names who is
// awaited.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/client/client.h"

namespace slackline::worker {

// SilenceWatch bounds the silence of servers during a request. Servers are numbered from 0 in the order given.
//
// Thread-safety: none.
class SilenceWatch {
 public:
  using Notice = std::function<void(const std::string&)>;

  // Creates a watch. A notice is given after `notice_every` of silence, and again after each further `notice_every`.
  SilenceWatch(absl::Span<const ServerInfo> servers, absl::Duration notice_every, Notice notice);

  // Begins a request, named `what` in messages. From now on a server may be silent for `timeout`.
  void Begin(const std::string& what, absl::Duration timeout, absl::Time now);
  // Reports that the server has sent a message that advances the request.
  void Heard(size_t server, absl::Time now);
  // Reports that the server is alive but a consistency gate is closed. `message` names the worker that all others wait
  // for.
  void HeardWaiting(size_t server, const std::string& message, absl::Time now);
  // Reports an open stream. `way`: for example "TCP".
  void StreamOpened(size_t server, const std::string& way);
  void StreamBroken(size_t server, const absl::Status& status);
  // Adds a server, with the next number.
  void Add(const ServerInfo& server, absl::Time now);
  // Reports that the server has moved to another address.
  void Moved(size_t server, const ServerInfo& info);

  // Gives notices that are due. `awaited` holds, for each server, the shards that are awaited from it.
  //   kDeadlineExceeded  a server was silent for the timeout; the message names its shards and whom it waited for last
  absl::Status Check(absl::Span<const std::vector<ShardId>> awaited, absl::Time now);
  // Time at which Check() may have something new to report.
  absl::Time next() const { return next_; }

  // Name and address of a server, for example "ps-1 (127.0.0.1:4000)".
  const std::string& name(size_t server) const { return peers_[server].name; }

 private:
  struct Peer {
    std::string name;
    absl::Time heard;
    absl::Time notice_at;
    bool ever_open = false;
    bool open = false;
    std::string broken;   // reason why the stream is down
    std::string waiting;  // last Waiting message in this request
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
