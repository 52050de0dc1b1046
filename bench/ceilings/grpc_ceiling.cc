// What a tuned gRPC stream gives when nothing but an SGD step hangs on it: rounds at depth 1 and 2 and what they cost,
// and the latency of 1 KiB there and back.
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/ceilings/bare_stream.h"
#include "bench/support/command_line.h"
#include "bench/support/process.h"
#include "bench/support/rate.h"
#include "bench/support/report.h"
#include "common/rpc/channel.h"

namespace slackline::bench {
namespace {

constexpr uint64_t kEchoBytes = 1024;
constexpr absl::Duration kStartTimeout = absl::Seconds(30);
// Rounds until buffers have their size and the allocator has its memory.
constexpr double kWarmSeconds = 0.2;

struct Options {
  double megabytes = 100;
  uint64_t chunk_bytes = 1 << 20;
  uint32_t pipelined = 64;
  Effort effort{.seconds = 2};
};

struct Server {
  Server(const std::string& name, const std::string& listen, uint64_t bytes_max)
      : name(name),
        child("the bare server", [&](const Channel& channel) { ServeBareStreams(listen, bytes_max, channel); }) {
    if (!child.channel().ReceiveText(&address, kStartTimeout)) {
      ExitOnError(absl::UnavailableError(absl::StrCat(child.name(), " did not start on ", listen)));
    }
  }

  const std::string name;
  Child child;
  std::string address;
};

void Measure(const std::string& what, const Server& server, uint32_t depth, const BareShape& shape, double seconds,
             BareClient& client, Report& report) {
  client.Run(kWarmSeconds, depth);
  const double client_cpu = CpuSeconds(getpid()), server_cpu = CpuSeconds(server.child.pid());
  const Rounds rounds = client.Run(seconds, depth);
  const double gigabytes = 2e-9 * static_cast<double>(shape.bytes) * static_cast<double>(rounds.round_us.size());
  const double client_used = CpuSeconds(getpid()) - client_cpu;
  const double server_used = CpuSeconds(server.child.pid()) - server_cpu;
  report.Add(Row(absl::StrCat(server.name, " ", what))
                 .Add("rounds_per_s", rounds.per_s())
                 .Add("gb_per_s", gigabytes / rounds.seconds)
                 .Add("client_cpu_s_per_gb", client_used / gigabytes)
                 .Add("server_cpu_s_per_gb", server_used / gigabytes)
                 .Add("cpu_s_per_gb", (client_used + server_used) / gigabytes)
                 .Add("p50_us", rounds.p50_us())
                 .Add("p99_us", rounds.p99_us()));
}

void MeasureServer(const Server& server, const Options& options, Report& report) {
  const double seconds = options.effort.seconds;
  const BareShape model{static_cast<uint64_t>(options.megabytes * 1e6) / sizeof(float) * sizeof(float),
                        options.chunk_bytes};
  const auto stream = BareClient::Connect(server.address, model);
  Measure("stream depth 1", server, 1, model, seconds, *stream, report);
  Measure("stream depth 2", server, 2, model, seconds, *stream, report);
  const BareShape echo{kEchoBytes, options.chunk_bytes};
  const auto small = BareClient::Connect(server.address, echo);
  Measure("echo 1 KiB", server, 1, echo, seconds, *small, report);
  Measure("echo 1 KiB pipelined", server, options.pipelined, echo, seconds, *small, report);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("What a tuned gRPC stream gives, with an SGD step straight from its slices.", "grpc_ceiling");
  app.add_option("--megabytes", options.megabytes, "Size of the model, 10^6 bytes")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e5));
  app.add_option("--chunk-bytes", options.chunk_bytes, "Largest message")
      ->capture_default_str()
      ->check(CLI::Range(4096, 4 << 20));
  app.add_option("--pipelined", options.pipelined, "Unanswered messages of the pipelined echo")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  AddEffort(app, options.effort);
  if (const auto exit_code = Parse(app, argc, argv)) return *exit_code;

  const auto bytes_max = static_cast<uint64_t>(options.megabytes * 1e6) + kEchoBytes;
  const Server tcp("tcp", "127.0.0.1:0", bytes_max);
  const Server local("unix", absl::StrCat("unix-abstract:slackline-bench-", getpid(), "-bare"), bytes_max);
  rpc::PrepareProcess();
  Report report(options.effort.json);
  for (int repeat = 0; repeat < options.effort.repeats; ++repeat) {
    for (const Server* server : {&tcp, &local}) MeasureServer(*server, options, report);
  }
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }
