#include "scheduler/shards/shard_directory.h"

#include "absl/algorithm/container.h"

namespace slackline::scheduler {

wire::ShardSpec ToWire(const ShardPlace& place) {
  wire::ShardSpec spec;
  spec.set_shard(place.shard.value());
  spec.set_server(place.server.value());
  spec.set_begin(place.begin);
  spec.set_end(place.end);
  return spec;
}

// --- Places -----------------------------------------------------------------------------------------------------

void ShardDirectory::Place(const job::Cluster& cluster, const std::map<ServerId, double>& shares) {
  places_ =
      PlaceShards(layout_.elements, {cluster.servers(), cluster.shards_per_server()}, shares, layout_.frozen_from);
  moved_ = !shares.empty();
}

bool ShardDirectory::Holds(ServerId server) const { return CountOn(server) > 0; }

size_t ShardDirectory::CountOn(ServerId server) const {
  return static_cast<size_t>(
      absl::c_count_if(places_, [&](const ShardPlace& place) { return place.server == server; }));
}

void ShardDirectory::Move(absl::Span<const ShardId> shards, ServerId from, ServerId to) {
  generation_ = generation_.Next();
  for (ShardPlace& place : places_) {
    if (absl::c_linear_search(shards, place.shard)) place.server = to;
  }
  moved_ = true;
  for (const ServerId server : {from, to}) {
    generations_[server] = generation_;
    installed_.erase(server);
  }
}

// --- Generations ------------------------------------------------------------------------------------------------

Generation ShardDirectory::GenerationOf(ServerId server) const {
  const auto found = generations_.find(server);
  return found != generations_.end() ? found->second : kFirstGeneration;
}

void ShardDirectory::Renew(ServerId server) {
  generation_ = generation_.Next();
  generations_[server] = generation_;
}

// --- Servers ----------------------------------------------------------------------------------------------------

const wire::LocalAddress* ShardDirectory::LocalOf(ServerId server) const {
  const auto found = locals_.find(server);
  return found != locals_.end() ? &found->second : nullptr;
}

void ShardDirectory::SetLocal(ServerId server, const std::optional<wire::LocalAddress>& local) {
  locals_.erase(server);
  if (local) locals_[server] = *local;
}

void ShardDirectory::Forget(ServerId server) {
  installed_.erase(server);
  generations_.erase(server);
  locals_.erase(server);
}

// --- Requests ---------------------------------------------------------------------------------------------------

template <typename Request, typename Fits>
void ShardDirectory::AddShards(const Fits& fits, Request& request) const {
  request.set_trained_elements(layout_.trained_elements);
  request.set_samples_per_epoch(layout_.train_samples);
  for (const ShardPlace& place : places_) {
    if (fits(place)) *request.add_shards() = ToWire(place);
  }
  request.set_frozen_from(layout_.frozen_from);
  AddOptimizer(layout_, request);
}

wire::InstallShardsRequest ShardDirectory::InstallRequest(ServerId server, Incarnation incarnation) const {
  wire::InstallShardsRequest request;
  request.set_job(job_.value());
  request.set_generation(GenerationOf(server).value());
  request.set_server(server.value());
  request.set_server_incarnation(incarnation.value());
  AddShards([&](const ShardPlace& place) { return place.server == server; }, request);
  return request;
}

wire::TakeShardsRequest ShardDirectory::TakeRequest(absl::Span<const ShardId> shards, ServerId to,
                                                    Incarnation incarnation) const {
  wire::TakeShardsRequest request;
  request.set_job(job_.value());
  request.set_server(to.value());
  request.set_server_incarnation(incarnation.value());
  if (shards.empty()) return request;
  AddShards([&](const ShardPlace& place) { return absl::c_linear_search(shards, place.shard); }, request);
  return request;
}

wire::ReplicationSource ShardDirectory::SourceOf(ServerId id, const Membership::Server& server) const {
  wire::ReplicationSource source;
  source.set_name(server.name);
  source.set_address(server.address);
  source.set_incarnation(server.incarnation.value());
  if (const wire::LocalAddress* local = LocalOf(id)) *source.mutable_local() = *local;
  return source;
}

// --- What outlives the scheduler --------------------------------------------------------------------------------

void ShardDirectory::Save(state::Scheduler& state) const {
  state.set_generation(generation_.value());
  for (state::Server& server : *state.mutable_members()->mutable_servers()) {
    const ServerId id(server.server());
    if (const wire::LocalAddress* local = LocalOf(id)) *server.mutable_local() = *local;
    if (const auto own = generations_.find(id); own != generations_.end()) server.set_generation(own->second.value());
  }
}

void ShardDirectory::Restore(const state::Scheduler& state, uint64_t generations) {
  generation_ = Generation(state.generation() + generations);
  for (const state::Server& from : state.members().servers()) {
    const ServerId id(from.server());
    if (from.has_local()) locals_[id] = from.local();
    if (from.generation() > 0) generations_[id] = Generation(from.generation());
  }
}

void ShardDirectory::RestorePlaces(const state::Placement& placement) {
  for (size_t i = 0; i < places_.size(); ++i) places_[i].server = ServerId(placement.servers(static_cast<int>(i)));
  moved_ = true;
}

}  // namespace slackline::scheduler
