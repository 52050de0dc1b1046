// Push + pull of a whole model through one real server and the real client over loopback, beside raw TCP in the
// same run: what is lost to the protocol, the optimizer step and gRPC.
//
//   exchange_bench [MEGABYTES=100] [SECONDS=3] [REPEATS=3]
//
// The two are measured in turns; the table shows medians. GB are 10^9 bytes, both directions counted. A round of the
// exchange also checks the gradient, takes an SGD step on it, and writes the weights into the trainer's memory; a
// round of TCP writes and reads 1 MiB at a time and does nothing with the bytes.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/rpc/channel.h"
#include "parameter_server.grpc.pb.h"
#include "ps/service/exchange.h"
#include "worker/client/client.h"

namespace slackline {
namespace {

constexpr uint64_t kJob = 1;
constexpr uint32_t kShards = 8;
constexpr size_t kTcpPiece = 1 << 20;
constexpr absl::Duration kTimeout = absl::Seconds(60);

struct Child {
  pid_t pid = 0;
  uint16_t port = 0;
};

// Runs `serve` in a process of its own, which tells its port through the given descriptor and serves until it is
// killed. Before any gRPC in this process: gRPC does not survive a fork.
Child Spawn(const std::function<void(int report)>& serve) {
  int ends[2];
  SLACKLINE_CHECK(pipe(ends) == 0);
  Child child;
  child.pid = fork();
  SLACKLINE_CHECK(child.pid >= 0);
  if (child.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    serve(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  SLACKLINE_CHECK(read(ends[0], &child.port, sizeof(child.port)) == sizeof(child.port));
  close(ends[0]);
  return child;
}

void Report(int descriptor, uint16_t port) { SLACKLINE_CHECK(write(descriptor, &port, sizeof(port)) == sizeof(port)); }

void End(const Child& child) {
  kill(child.pid, SIGKILL);
  waitpid(child.pid, nullptr, 0);
}

// --- Raw TCP ----------------------------------------------------------------------------------------------------

void Move(ssize_t (*move)(int, char*, size_t), int descriptor, size_t bytes, std::vector<char>& memory) {
  while (bytes > 0) {
    const ssize_t moved = move(descriptor, memory.data(), std::min(bytes, memory.size()));
    if (moved <= 0) _exit(0);  // the other process is gone
    bytes -= static_cast<size_t>(moved);
  }
}

ssize_t Receive(int descriptor, char* memory, size_t size) { return recv(descriptor, memory, size, 0); }
ssize_t Transmit(int descriptor, char* memory, size_t size) { return send(descriptor, memory, size, MSG_NOSIGNAL); }

void ServeTcp(int report, size_t bytes) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  SLACKLINE_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener, 1) == 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  Report(report, ntohs(address.sin_port));
  const int connection = accept(listener, nullptr, nullptr);
  std::vector<char> memory(kTcpPiece);
  while (true) {
    Move(Receive, connection, bytes, memory);
    Move(Transmit, connection, bytes, memory);
  }
}

int ConnectTcp(uint16_t port) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  SLACKLINE_CHECK(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return connection;
}

// --- The exchange -----------------------------------------------------------------------------------------------

job::Job BenchJob() {
  job::Job job;
  job.mutable_consistency()->set_mode(job::Consistency::ASYNC);
  job.mutable_optimizer()->set_lr(1e-6);
  job.mutable_training()->set_batch_size(1);
  job.mutable_cluster()->set_workers(1);
  return job;
}

void ServeExchange(int report) {
  Metrics metrics;
  const SteadyTime time;
  ps::ExchangeOptions options;
  options.job = BenchJob();
  auto exchange = ps::Exchange::Start(options, metrics, time);
  SLACKLINE_CHECK(exchange.ok());
  SLACKLINE_CHECK((*exchange)->SetIdentity({JobId(kJob), ServerId(1)}).ok());
  Report(report, (*exchange)->port());
  pause();
}

worker::ShardMap MakeMap(const std::string& address, uint64_t elements) {
  worker::ShardMap map;
  map.generation = Generation(1);
  map.servers = {{ServerId(1), "ps-0", address}};
  map.elements = map.trained_elements = elements;
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    map.shards.push_back({ShardId(shard), elements * shard / kShards, elements * (shard + 1) / kShards, ServerId(1)});
  }
  return map;
}

// What a scheduler would do.
void Install(const worker::ShardMap& map) {
  auto control = wire::ParameterServerControl::NewStub(rpc::ControlChannel(map.servers[0].address));
  wire::InstallShardsRequest install;
  install.set_job(kJob);
  install.set_generation(1);
  install.set_server(1);
  install.set_trained_elements(map.elements);
  install.set_samples_per_epoch(60000);
  for (const worker::ShardInfo& shard : map.shards) {
    wire::ShardSpec& spec = *install.add_shards();
    spec.set_shard(shard.shard.value());
    spec.set_begin(shard.begin);
    spec.set_end(shard.end);
    spec.set_server(1);
  }
  wire::InstallShardsReply installed;
  SLACKLINE_CHECK(control->InstallShards(rpc::ContextWithTimeout(kTimeout).get(), install, &installed).ok());
  wire::SetMembersRequest members;
  members.set_job(kJob);
  members.set_generation(1);
  members.set_epoch(1);
  members.add_members()->set_worker(1);
  members.mutable_members(0)->set_incarnation(1);
  wire::SetMembersReply set;
  SLACKLINE_CHECK(control->SetMembers(rpc::ContextWithTimeout(kTimeout).get(), members, &set).ok());
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "exchange_bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

std::unique_ptr<worker::Client> Connect(const worker::ShardMap& map) {
  worker::ClientOptions options;
  options.job = JobId(kJob);
  options.worker = WorkerId(1);
  options.incarnation = Incarnation(1);
  auto client = worker::Client::Create(options, map);
  Check(client.status());
  return *std::move(client);
}

// --- Measuring --------------------------------------------------------------------------------------------------

// Rounds a second of `round`, over at least `seconds`.
double Rate(double seconds, const std::function<void()>& round) {
  round();  // warm
  const absl::Time begin = absl::Now();
  double elapsed = 0;
  int rounds = 0;
  while (elapsed < seconds) {
    round();
    ++rounds;
    elapsed = absl::ToDoubleSeconds(absl::Now() - begin);
  }
  return rounds / elapsed;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 100;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 3;
  const uint64_t elements = static_cast<uint64_t>(megabytes * 1e6) / sizeof(float);
  const size_t bytes = elements * sizeof(float);
  const double gigabytes = 2e-9 * static_cast<double>(bytes);

  const Child tcp = Spawn([&](int report) { ServeTcp(report, bytes); });
  const Child server = Spawn(ServeExchange);
  const int connection = ConnectTcp(tcp.port);
  std::vector<char> memory(kTcpPiece);
  const worker::ShardMap map = MakeMap("127.0.0.1:" + std::to_string(server.port), elements);
  Install(map);
  const auto client = Connect(map);
  std::vector<float> parameters(elements, 1.0f);
  const std::vector<float> gradient(elements, 0.5f);
  Check(client->Seed(parameters, kTimeout));
  Check(client->Pull(absl::MakeSpan(parameters), kTimeout));

  worker::PushInfo info;
  info.samples = 1;
  info.gradient_norm = 1;
  std::vector<double> tcp_rates, rates;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    tcp_rates.push_back(Rate(seconds, [&] {
      Move(Transmit, connection, bytes, memory);
      Move(Receive, connection, bytes, memory);
    }));
    rates.push_back(Rate(seconds, [&] {
      const auto step = client->Step(gradient, info, absl::MakeSpan(parameters), kTimeout);
      Check(step.status());
    }));
  }
  std::printf("%-34s %10s %10s\n", "", "rounds/s", "GB/s");
  std::printf("%-34s %10.1f %10.2f\n", "raw TCP, 1 MiB writes", Median(tcp_rates), Median(tcp_rates) * gigabytes);
  std::printf("%-34s %10.1f %10.2f\n", "exchange: push + SGD + pull", Median(rates), Median(rates) * gigabytes);
  std::printf("%-34s %10.2f\n", "ratio", Median(rates) / Median(tcp_rates));
  client->Close("the bench is done", absl::Seconds(1));
  End(tcp);
  End(server);
  return 0;
}

}  // namespace
}  // namespace slackline

int main(int argc, char** argv) {
  slackline::rpc::RetainAllocations();
  return slackline::Main(argc, argv);
}
