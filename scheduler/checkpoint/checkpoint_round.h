// A single checkpoint of a job, from the first call to the servers to their last file. Pure.
//
// If all shards are to be cut at one version, the round first asks the servers for their versions. The largest becomes
// the cut; shards that are behind reach it within the step. If a shard has gone past the cut meanwhile, its server says
// so. The round then tries again further ahead, each time by twice as many versions, until no shard can be past the cut
// before its server hears of it. In other jobs each shard is cut where it is.
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
#include "common/base/ids.h"
#include "parameter_server.pb.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

class CheckpointRound {
 public:
  // Most times that the servers are asked for their versions, if these differ by more than `apart_max`: on a busy
  // machine the servers answer at different moments.
  static constexpr int kAsksMax = 5;

  struct Config {
    uint64_t number = 0;
    // Reason for people: who wants the checkpoint.
    std::string reason;
    // True to cut all shards at one version.
    bool aligned = false;
    // Largest difference between the versions of shards that take their steps together. If the difference stays larger,
    // for example because a shard came back from a snapshot, one version is not one step, and each shard is cut where
    // it is.
    uint64_t apart_max = 1;
    std::map<ServerId, std::string> servers;  // names of the servers
    absl::Time begun;
    absl::Duration timeout;
  };

  // A call for all servers.
  struct Call {
    uint32_t attempt = 0;
    bool ask_only = false;
    std::optional<uint64_t> at_version;
  };

  explicit CheckpointRound(Config config);

  const Config& config() const { return config_; }
  // Returns the next call, once each; nullopt if there is none.
  std::optional<Call> TakeCall();

  // Notes a server's reply to a call, or the error if the server will not answer it.
  void Answered(ServerId server, const Call& call, const absl::StatusOr<wire::BeginCheckpointReply>& reply);
  // Notes the progress in a server's heartbeat. Returns true if it is about this checkpoint and final.
  bool Heard(ServerId server, const wire::CheckpointProgress& progress);
  void ServerLost(ServerId server);
  // Fails the round if it has taken too long.
  void Tick(absl::Time now);

  // True once the round has failed (error() is not empty) or all files are written.
  bool over() const { return !error_.empty() || written(); }
  const std::string& error() const { return error_; }
  // True if the round failed because a server's disk is full.
  bool no_room() const { return no_room_; }
  // Returns all files, in the order of their elements.
  std::vector<wire::CheckpointFile> Files() const;

 private:
  bool written() const { return files_.size() == config_.servers.size(); }
  void Fail(ServerId server, const std::string& what);
  std::string NameOf(ServerId server) const;
  // Chooses the next call, once all servers have answered the present one.
  void Decide();
  // True if shards whose versions differ by much may still take their steps together.
  bool MayBeTogether() const;
  // Asks all servers for their versions once more.
  void AskAgain();
  // Returns the servers that the round waits for, and why, for people.
  std::string Awaited() const;

  const Config config_;
  std::optional<Call> call_;  // next call, not taken yet
  Call out_;                  // last call that was made
  uint64_t ahead_ = 0;        // versions beyond the largest known one
  uint64_t version_max_ = 0;
  std::optional<uint64_t> version_min_;
  // Times that the servers were asked; and the largest version in the answers before the last ones.
  int asks_ = 1;
  std::optional<uint64_t> asked_before_;
  uint64_t apart_ = 0;   // largest difference of versions on one server
  bool passed_ = false;  // true if a shard was past the cut
  std::set<ServerId> answered_;
  std::map<ServerId, std::string> waiting_;  // reason why a server itself waits
  std::map<ServerId, std::vector<wire::CheckpointFile>> files_;
  std::string error_;
  bool no_room_ = false;
};

}  // namespace slackline::scheduler
