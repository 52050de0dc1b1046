#include "bench/exchange/cluster.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/exchange/data_path.h"
#include "common/base/check.h"
#include "common/log/logging.h"
#include "common/metrics/metrics.h"
#include "common/rpc/channel.h"
#include "common/time/clock.h"
#include "parameter_server.grpc.pb.h"
#include "ps/service/sequencer.h"

namespace slackline::bench {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(60);
constexpr uint64_t kGeneration = 1;
// Incarnations.
constexpr uint64_t kServer = 1, kBackup = 2;

std::string NameOf(uint32_t number, bool backup) { return absl::StrCat(backup ? "backup of ps-" : "ps-", number - 1); }

void Serve(const ExchangeBenchOptions& options, uint32_t number, bool backup, const Channel& channel) {
  rpc::PrepareProcess();
  log::Initialise(NameOf(number, backup));  // standard output is for figures
  Metrics metrics;
  const SteadyTime time;
  auto exchange = ps::Sequencer::Start(MakeServerOptions(options), metrics, time);
  ExitOnError(exchange.status());
  ExitOnError((*exchange)->SetIdentity({JobId(kBenchJob), ServerId(number), Incarnation(backup ? kBackup : kServer)}));
  const wire::LocalAddress& local = (*exchange)->local();
  channel.SendText(absl::StrCat(options.listen, ":", (*exchange)->port(), "|", local.host(), "|", local.socket(), "|",
                                local.memory_socket()));
  while (true) pause();
}

// Where shard `index` of `shards` begins: on a tensor's border when there are enough of them.
uint64_t BorderOf(const ExchangeBenchOptions& options, uint64_t index, uint64_t shards) {
  if (options.tensors >= shards) return options.tensors * index / shards * options.ElementsOfTensor();
  return options.elements() * index / shards;
}

worker::ShardMap MakeMap(const ExchangeBenchOptions& options, const std::vector<worker::ServerInfo>& servers) {
  worker::ShardMap map;
  map.generation = Generation(kGeneration);
  map.elements = map.trained_elements = options.elements();
  const uint32_t shards = options.servers * options.shards;
  map.servers = servers;
  for (uint32_t shard = 0; shard < shards; ++shard) {
    map.shards.push_back({ShardId(shard), BorderOf(options, shard, shards), BorderOf(options, shard + 1, shards),
                          ServerId(shard / options.shards + 1)});
  }
  return map;
}

wire::InstallShardsRequest InstallOf(const worker::ShardMap& map, ServerId server) {
  wire::InstallShardsRequest install;
  install.set_job(kBenchJob);
  install.set_generation(kGeneration);
  install.set_server(server.value());
  install.set_trained_elements(map.elements);
  install.set_samples_per_epoch(60000);
  for (const worker::ShardInfo& shard : map.shards) {
    if (shard.server != server) continue;
    wire::ShardSpec& spec = *install.add_shards();
    spec.set_shard(shard.shard.value());
    spec.set_begin(shard.begin);
    spec.set_end(shard.end);
    spec.set_server(server.value());
  }
  return install;
}

wire::SetMembersRequest MembersOf(uint32_t workers) {
  wire::SetMembersRequest members;
  members.set_job(kBenchJob);
  members.set_generation(kGeneration);
  members.set_epoch(1);
  for (uint32_t worker = 1; worker <= workers; ++worker) {
    wire::Member& member = *members.add_members();
    member.set_worker(worker);
    member.set_incarnation(1);
  }
  return members;
}

void InstallBackup(const worker::ShardMap& map, const worker::ServerInfo& server, const worker::ServerInfo& backup,
                   const std::shared_ptr<const rpc::Protection>& protection) {
  wire::InstallShardsRequest install = InstallOf(map, server.server);
  install.set_replicated(true);
  wire::ReplicationSource& source = *install.mutable_backup_of();
  source.set_name(server.name);
  source.set_address(server.address);
  source.set_incarnation(kServer);
  source.mutable_local()->set_host(server.host);
  source.mutable_local()->set_socket(server.socket);
  auto control = wire::ParameterServerControl::NewStub(rpc::ControlChannel(backup.address, protection));
  const auto context = rpc::ContextWithTimeout(kStartTimeout);
  context->set_wait_for_ready(true);
  wire::InstallShardsReply installed;
  ExitOnError(rpc::FromGrpc(control->InstallShards(context.get(), install, &installed)));
}

// What a scheduler would do.
void Install(const ExchangeBenchOptions& options, const worker::ShardMap& map,
             const std::vector<worker::ServerInfo>& backups) {
  const uint32_t workers = options.members();
  const auto protection = OpenSecurity(options, security::Role::kScheduler).To(security::Role::kServer);
  for (const worker::ServerInfo& server : map.servers) {
    auto control = wire::ParameterServerControl::NewStub(rpc::ControlChannel(server.address, protection));
    const auto context = rpc::ContextWithTimeout(kStartTimeout);
    context->set_wait_for_ready(true);
    wire::InstallShardsRequest install = InstallOf(map, server.server);
    install.set_replicated(options.replicated);
    wire::InstallShardsReply installed;
    ExitOnError(rpc::FromGrpc(control->InstallShards(context.get(), install, &installed)));
    wire::SetMembersReply set;
    ExitOnError(
        rpc::FromGrpc(control->SetMembers(rpc::ContextWithTimeout(kStartTimeout).get(), MembersOf(workers), &set)));
    if (options.replicated) InstallBackup(map, server, backups.at(server.server.value() - 1), protection);
  }
}

}  // namespace

std::unique_ptr<Child> StartServer(const ExchangeBenchOptions& options, uint32_t number, bool backup) {
  return std::make_unique<Child>(absl::StrCat("server ", NameOf(number, backup)),
                                 [&](const Channel& channel) { Serve(options, number, backup, channel); });
}

worker::ServerInfo InfoOf(const Child& server, uint32_t number) {
  std::string address;
  if (!server.channel().ReceiveText(&address, kStartTimeout)) {
    ExitOnError(absl::UnavailableError(absl::StrCat(server.name(), " did not start")));
  }
  const std::vector<std::string> parts = absl::StrSplit(address, '|');
  SLACKLINE_CHECK(parts.size() == 4);
  return {.server = ServerId(number),
          .name = absl::StrCat("ps-", number - 1),
          .address = parts[0],
          .host = parts[1],
          .socket = parts[2],
          .memory_socket = parts[3]};
}

Cluster::Cluster(const ExchangeBenchOptions& options) {
  std::vector<worker::ServerInfo> infos;
  for (const std::string& address : options.connect) {
    const auto number = static_cast<uint32_t>(infos.size() + 1);
    infos.push_back({ServerId(number), absl::StrCat("ps-", number - 1), address});
  }
  for (uint32_t number = 1; options.connect.empty() && number <= options.servers; ++number) {
    servers_.push_back(StartServer(options, number));
    infos.push_back(InfoOf(*servers_.back(), number));
  }
  std::vector<worker::ServerInfo> backups;
  for (uint32_t number = 1; options.replicated && number <= options.servers; ++number) {
    backups_.push_back(StartServer(options, number, /*backup=*/true));
    backups.push_back(InfoOf(*backups_.back(), number));
  }
  map_ = MakeMap(options, infos);
  // In a process of its own: this one will fork again.
  const Child installer("the installer", [&](const Channel& channel) {
    Install(options, map_, backups);
    channel.Send(true);
  });
  bool done = false;
  if (!installer.channel().Receive(&done, 2 * kStartTimeout)) {
    ExitOnError(absl::UnavailableError("the servers did not take their shards"));
  }
}

std::vector<pid_t> Cluster::pids() const {
  std::vector<pid_t> pids;
  for (const auto& server : servers_) pids.push_back(server->pid());
  return pids;
}

}  // namespace slackline::bench
