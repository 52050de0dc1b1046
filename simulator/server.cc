#include "simulator/server.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/job/optimizer_config.h"
#include "ps/shard/shard_settings.h"

namespace slackline::simulator {
namespace {

constexpr double kBytesPerGbyte = 1e9;
// What a push, a pull or a reply takes on the wire beside its values.
constexpr uint64_t kItemBytes = 32;

LinkSpeed ServerLink(const job::Simulation& simulation) {
  return {absl::ZeroDuration(), simulation.server_gbit_per_s() * kBytesPerGbyte / 8};
}

codec::Codec PushCodec(const job::Wire& wire) {
  const absl::StatusOr<codec::Codec> codec = codec::ParseCodec(wire.encoding());
  // The job file has been checked.
  SLACKLINE_CHECK(codec.ok());
  return *codec;
}

}  // namespace

Server::Server(World& world, std::string name)
    : world_(world),
      push_codec_(PushCodec(world.job.wire())),
      name_(std::move(name)),
      endpoint_(world.network.Add(ServerLink(world.job.simulation()))) {}

void Server::Install(const wire::InstallShardsRequest& request) {
  const bool computes = !world_.computation.initial_weights().empty();
  std::optional<OptimizerConfig> optimizer;
  if (computes) optimizer = MakeOptimizerConfig(world_.job, request.samples_per_epoch());
  const job::Consistency& consistency = world_.job.consistency();
  ps::EngineConfig engine = ps::MakeEngineConfig(world_.job, world_.timeouts, request.samples_per_epoch());
  // A simulated worker asks again for the answers of its window only; more would take memory for thousands of workers.
  engine.window_max = world_.job.wire().window();
  for (const wire::ShardSpec& spec : request.shards()) {
    ShardSpec shard;
    shard.id = ShardId(spec.shard());
    shard.extent = ps::ExtentOf(request, spec);
    shard.groups = ps::RunsOf(request, spec);
    shard.chunk_elements = world_.job.wire().chunk_bytes() / sizeof(float);
    shard.window = world_.job.wire().window();
    if (computes && consistency.delay_compensation() != job::DelayCompensation::NONE) {
      shard.references_max = consistency.dc_references_max();
    }
    shards_.try_emplace(shard.id, shard, engine, optimizer);
  }
  installed_ = true;
  seeded_ = shards_.empty();
}

Clock64 Server::SetMembers(const wire::SetMembersRequest& request) {
  const ps::MemberSet set = ps::MembersOf(request);
  Clock64 largest;
  for (auto& [id, shard] : shards_) {
    if (absl::Status status = shard.SetMembers(set); !status.ok()) world_.Fail(name_, status);
    if (request.has_staleness_bound()) shard.SetStalenessBound(request.staleness_bound());
    largest = std::max(largest, shard.clock_min());
  }
  Flush();
  return largest;
}

uint64_t Server::PushBytes(ShardId shard) const {
  const ps::ShardExtent& extent = shards_.at(shard).spec().extent;
  return codec::EncodedBytesMax(push_codec_, extent.trained) + (extent.pushed() - extent.trained) * sizeof(float);
}

uint64_t Server::PullBytes(ShardId shard) const {
  const ps::ShardExtent& extent = shards_.at(shard).spec().extent;
  const codec::Codec codec = {
      world_.job.wire().pull_encoding() == job::Wire::FP32 ? codec::Encoding::kFp32 : codec::Encoding::kBf16, 0};
  return codec::EncodedBytesMax(codec, extent.trained) + (extent.pushed() - extent.trained) * sizeof(float);
}

uint64_t Server::Bytes(const Message& message) const {
  uint64_t bytes = 0;
  for (const worker::Session::Send& ask : message.asks) {
    bytes += kItemBytes;
    if (ask.push) bytes += PushBytes(ask.shard);
  }
  return bytes;
}

uint64_t Server::Bytes(const ShardReply& reply) const {
  return kItemBytes + (reply.served ? PullBytes(reply.shard) : 0);
}

absl::Time Server::Occupy(uint64_t bytes) {
  const double rate = world_.job.simulation().server_gbyte_per_s() * kBytesPerGbyte;
  busy_until_ = std::max(busy_until_, world_.queue.Now());
  if (rate > 0) busy_until_ += absl::Seconds(static_cast<double>(bytes) / rate);
  return busy_until_;
}

void Server::Send(Message message) {
  const uint64_t bytes = Bytes(message);
  bytes_in_ += bytes;
  const absl::Time arrives = world_.network.Send({message.peer->endpoint(), endpoint_, bytes}, world_.queue.Now());
  world_.queue.At(arrives, [this, bytes, message = std::move(message)]() mutable {
    world_.queue.At(Occupy(bytes), [this, message = std::move(message)] { Handle(message); });
  });
}

void Server::Handle(const Message& message) {
  if (message.hello) {
    for (auto& [id, shard] : shards_) {
      if (!message.seed) break;
      if (absl::Status seed = shard.Seed(world_.computation.initial_weights()); !seed.ok()) world_.Fail(name_, seed);
    }
    seeded_ = seeded_ || message.seed;
    peers_[message.sender] = message.peer;
    for (auto& [id, shard] : shards_) {
      // Who is no member any more hears it when it pushes or pulls.
      (void)shard.Hello(*message.hello);
    }
  }
  const absl::Time now = world_.queue.Now();
  for (const worker::Session::Send& ask : message.asks) {
    Shard& shard = shards_.at(ask.shard);
    if (ask.push) {
      shard.Push({message.sender, *ask.push, ask.base, message.gradient->result.samples, now, message.gradient->norm},
                 message.gradient);
    }
    if (ask.pull) shard.Pull({message.sender, *ask.pull, ask.clock, world_.job.wire().window()}, now);
  }
  Flush();
}

void Server::Disconnected(const ps::Sender& sender) {
  peers_.erase(sender);
  for (auto& [id, shard] : shards_) shard.Disconnected(sender);
}

void Server::Tick() {
  for (auto& [id, shard] : shards_) shard.Tick(world_.queue.Now());
  Flush();
}

void Server::Flush() {
  std::map<ps::Sender, std::vector<ShardReply>> by_worker;
  for (auto& [id, shard] : shards_) {
    for (ShardReply& reply : shard.TakeReplies()) by_worker[reply.to].push_back(std::move(reply));
  }
  for (auto& [sender, replies] : by_worker) {
    const auto peer = peers_.find(sender);
    if (peer == peers_.end()) continue;
    uint64_t bytes = 0;
    for (const ShardReply& reply : replies) bytes += Bytes(reply);
    // The thread hands the bytes over before it turns to what comes next.
    const absl::Time sent = Occupy(bytes);
    world_.queue.At(sent, [this, to = peer->second, bytes, replies = std::move(replies)]() mutable {
      const absl::Time arrives = world_.network.Send({endpoint_, to->endpoint(), bytes}, world_.queue.Now());
      world_.queue.At(arrives, [to, replies = std::move(replies)] { to->Deliver(replies); });
    });
  }
}

}  // namespace slackline::simulator
