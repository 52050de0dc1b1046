// Directory of the model's shards: the model's layout, the server of each shard, the generation of this map, and the
// addresses that other processes of the same host use. Composes the requests that give servers their shards. Pure.
//
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "scheduler.pb.h"
#include "scheduler/base/model_layout.h"
#include "scheduler/members/membership.h"
#include "scheduler/shards/placement.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Generation of the shard map of a job whose servers have all stayed.
inline constexpr Generation kFirstGeneration{1};

wire::ShardSpec ToWire(const ShardPlace& place);

class ShardDirectory {
 public:
  explicit ShardDirectory(JobId job) : job_(job) {}

  void SetLayout(ModelLayout layout) { layout_ = std::move(layout); }
  const ModelLayout& layout() const { return layout_; }

  // --- Places ---
  // Places the model on the servers that the job begins with, numbered from 1.
  void Place(const job::Cluster& cluster, const std::map<ServerId, double>& shares);
  bool placed() const { return !places_.empty(); }
  const std::vector<ShardPlace>& places() const { return places_; }
  // True if the places are not those that Place() gives without shares.
  bool moved() const { return moved_; }
  bool Holds(ServerId server) const;
  size_t CountOn(ServerId server) const;
  // Gives the shards to a server, under a new generation of both that have changed.
  void Move(absl::Span<const ShardId> shards, ServerId from, ServerId to);

  // --- Generations ---
  // Generation of the map, which rises when a server comes back or shards move.
  Generation generation() const { return generation_; }
  // Returns the generation of the map in which the server got its shards in its present life.
  Generation GenerationOf(ServerId server) const;
  // Notes that the server gets its shards once more, in a new life.
  void Renew(ServerId server);

  // --- Servers ---
  // Servers that have their shards.
  bool installed(ServerId server) const { return installed_.contains(server); }
  void SetInstalled(ServerId server) { installed_.insert(server); }
  void SetNotInstalled(ServerId server) { installed_.erase(server); }
  // Returns how processes of the same host reach the server; null if unknown.
  const wire::LocalAddress* LocalOf(ServerId server) const;
  void SetLocal(ServerId server, const std::optional<wire::LocalAddress>& local);
  void Forget(ServerId server);

  // --- Requests ---
  // Returns a request that installs the server's shards, with what is the same for all who are to have them.
  wire::InstallShardsRequest InstallRequest(ServerId server, Incarnation incarnation) const;
  wire::TakeShardsRequest TakeRequest(absl::Span<const ShardId> shards, ServerId to, Incarnation incarnation) const;
  // Describes a server from which another copies shards.
  wire::ReplicationSource SourceOf(ServerId id, const Membership::Server& server) const;

  // --- What outlives the scheduler ---
  void Save(state::Scheduler& state) const;
  // `generations`: how many generations may have been forgotten.
  void Restore(const state::Scheduler& state, uint64_t generations);
  // Restores the places after moves. Requires: placed(), with as many shards.
  void RestorePlaces(const state::Placement& placement);

 private:
  // Adds the shards whose place fits, with what their receiver must know of the model.
  template <typename Request, typename Fits>
  void AddShards(const Fits& fits, Request& request) const;

  const JobId job_;
  ModelLayout layout_;
  std::vector<ShardPlace> places_;
  bool moved_ = false;
  Generation generation_ = kFirstGeneration;
  std::map<ServerId, Generation> generations_;  // of servers whose shards are not those of the first map
  std::set<ServerId> installed_;
  std::map<ServerId, wire::LocalAddress> locals_;
};

}  // namespace slackline::scheduler
