// One checkpoint of a job, from the first call to the servers to their last file. Pure.
//
// Where all shards are to be cut at one version, the servers are asked for theirs, and the largest becomes the cut:
// those that are behind get there within the step. A shard that has gone on meanwhile says so; then it is tried again
// further ahead, each time by twice as many versions, until no shard can be past the cut before it hears of it.
// Elsewhere each shard is cut where it is.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "parameter_server.pb.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

class CheckpointRound {
 public:
  struct Config {
    uint64_t number = 0;
    // For people: who wants it.
    std::string reason;
    // All shards at one version.
    bool aligned = false;
    // Versions that shards which take their steps together may be apart; where they are further, as one that came back
    // from a snapshot is, one version is not one step, and each is cut where it is.
    uint64_t apart_max = 1;
    std::map<ServerId, std::string> servers;  // with their names
    absl::Time begun;
    absl::Duration timeout;
  };

  // What all servers are to be told.
  struct Call {
    uint32_t attempt = 0;
    bool ask_only = false;
    std::optional<uint64_t> at_version;
  };

  explicit CheckpointRound(Config config);

  const Config& config() const { return config_; }
  // Once for each.
  std::optional<Call> TakeCall();

  // A server has answered a call, or will not.
  void Answered(ServerId server, const Call& call, const absl::StatusOr<wire::BeginCheckpointReply>& reply);
  // What a server's heartbeat says. Returns whether it is about this checkpoint and final.
  bool Heard(ServerId server, const wire::CheckpointProgress& progress);
  void ServerLost(ServerId server);
  // Fails when it has taken too long.
  void Tick(absl::Time now);

  // Whether it is over, and how: all files, in the order of their elements.
  bool over() const { return !error_.empty() || written(); }
  const std::string& error() const { return error_; }
  // It failed because a server's disk is full.
  bool no_room() const { return no_room_; }
  std::vector<wire::CheckpointFile> Files() const;

 private:
  bool written() const { return files_.size() == config_.servers.size(); }
  void Fail(ServerId server, const std::string& what);
  std::string NameOf(ServerId server) const;
  // All have answered the call that is out.
  void Decide();
  // Who is waited for, for people.
  std::string Awaited() const;

  const Config config_;
  std::optional<Call> call_;  // not taken yet
  Call out_;                  // the last one that was made
  uint64_t ahead_ = 0;        // versions beyond the largest one that was heard of
  uint64_t version_max_ = 0;
  std::optional<uint64_t> version_min_;
  bool passed_ = false;  // a shard was past the cut
  std::set<ServerId> answered_;
  std::map<ServerId, std::string> waiting_;  // what a server itself waits for
  std::map<ServerId, std::vector<wire::CheckpointFile>> files_;
  std::string error_;
  bool no_room_ = false;
};

}  // namespace slackline::scheduler
