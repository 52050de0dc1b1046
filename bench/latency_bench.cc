// One KiB of gradient there and one KiB of weights back, one exchange at a time, through the real client and server;
// in turns with a bare gRPC stream that does the same without any of the semantics.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/ceilings/bare_stream.h"
#include "bench/exchange/cluster.h"
#include "bench/exchange/data_path.h"
#include "bench/exchange/options.h"
#include "bench/exchange/secrets.h"
#include "bench/exchange/trainer.h"
#include "bench/support/report.h"
#include "common/rpc/channel.h"

namespace slackline::bench {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr double kWarmSeconds = 0.1;

int Main(int argc, char** argv) {
  ExchangeBenchOptions options;
  options.effort.seconds = 1;
  options.shards = 1;
  uint64_t bytes = 1024;
  CLI::App app("Small exchanges beside a bare gRPC stream.", "latency_bench");
  app.add_option("--bytes", bytes, "Size of the model")->capture_default_str()->check(CLI::Range(4, 1 << 20));
  app.add_option("--shards", options.shards, "Shards of the model")->capture_default_str()->check(CLI::Range(1, 1024));
  AddDataPath(app, options);
  AddEffort(app, options.effort);
  if (const auto exit_code = Parse(app, argc, argv)) return *exit_code;
  options.megabytes = 1e-6 * static_cast<double>(bytes);
  options.tensors = 1;
  if (const auto built = MakeClientOptions(options, WorkerId(1)); !built.ok()) {
    std::fprintf(stderr, "latency_bench: %s\n", std::string(built.status().message()).c_str());
    return kExitUsage;
  }

  const Secrets secrets(options);
  // All processes first: gRPC does not survive a fork.
  const bool local = TransportOf(options) != "tcp";
  const std::string listen = local ? absl::StrCat("unix-abstract:slackline-latency-", getpid()) : "127.0.0.1:0";
  const Child bare("the bare server",
                   [&](const Channel& channel) { ServeBareStreams(listen, options.bytes(), channel); });
  std::string address;
  if (!bare.channel().ReceiveText(&address, kStartTimeout)) {
    ExitOnError(absl::UnavailableError("the bare server did not start"));
  }
  const Cluster cluster(options);
  Trainer trainer(options, cluster, 1, {});
  trainer.AwaitReady();
  rpc::PrepareProcess();
  const auto echo = BareClient::Connect(address, {.bytes = options.bytes()});

  Report report(options.effort.json);
  for (int repeat = 0; repeat < options.effort.repeats; ++repeat) {
    echo->Run(kWarmSeconds, options.window);
    const Rounds rounds = echo->Run(options.effort.seconds, options.window);
    report.Add(Row("bare stream")
                   .Add("rounds_per_s", rounds.per_s())
                   .Add("p50_us", rounds.p50_us())
                   .Add("p99_us", rounds.p99_us()));
    trainer.Do({.seconds = kWarmSeconds});
    const Outcome outcome = trainer.Do({.seconds = options.effort.seconds});
    report.Add(Row("exchange")
                   .Add("rounds_per_s", outcome.per_s())
                   .Add("p50_us", outcome.p50_us)
                   .Add("p99_us", outcome.p99_us));
    report.Add(Row("exchange / bare stream")
                   .Add("rate_ratio", outcome.per_s() / rounds.per_s())
                   .Add("p50_ratio", outcome.p50_us / rounds.p50_us()));
  }
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }
