#include "bench/exchange/options.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "bench/exchange/data_path.h"
#include "common/codec/codec.h"

namespace slackline::bench {
namespace {

// Returns what is wrong with a --wire, or nothing.
std::string WireMistake(const std::string& wire) {
  if (codec::ParseCodec(wire).ok()) return "";
  return absl::StrCat("found ", wire, "; allowed is fp32, bf16, fp16, int8 or topk:FRACTION, such as topk:0.01");
}

void AddModel(CLI::App& app, ExchangeBenchOptions& options) {
  app.add_option("--megabytes", options.megabytes, "Size of the model, 10^6 bytes of float32")
      ->capture_default_str()
      ->check(CLI::Range(0.0001, 1e5));
  app.add_option("--tensors", options.tensors, "Tensors of equal size that the model is made of")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--optimizer", options.optimizer, "Step that the servers take")
      ->capture_default_str()
      ->check(CLI::IsMember({"sgd", "momentum", "adam"}));
}

void AddShape(CLI::App& app, ExchangeBenchOptions& options) {
  app.add_option("--servers", options.servers, "Server processes")->capture_default_str()->check(CLI::Range(1, 64));
  app.add_option("--shards", options.shards, "Shards a server")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--workers", options.workers, "Worker processes, all at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--backward-ms", options.backward_ms,
                 "CPU time of a backward that finishes layer after layer: gradients leave meanwhile, and at its end")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e5));
  app.add_flag("--pusher-beside", options.pusher_beside,
               "The worker only pulls: alone, then beside another that pushes at full speed");
  app.add_option("--stalled-readers", options.stalled_readers, "Readers that ask for the weights and never take them")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  app.add_flag("--memory", options.memory, "Also the servers' peak memory beside what they may use");
  app.add_option("--staging-megabytes", options.staging_megabytes,
                 "What a server may stage; 0 means limits.staging_bytes_max's default")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
}

void AddDistance(CLI::App& app, ExchangeBenchOptions& options) {
  auto* serve = app.add_flag("--serve", options.serve, "Only the servers, for one --connect; ends with SIGTERM");
  app.add_option("--listen", options.listen, "IPv4 address that --serve listens on")->capture_default_str();
  app.add_option("--connect", options.connect, "Only the workers; addresses as --serve prints them")
      ->type_name("HOST:PORT...")
      ->excludes(serve);
  app.add_option("--connect-raw", options.connect_raw, "Also raw TCP, to the address that --serve prints")
      ->type_name("HOST:PORT")
      ->excludes(serve);
}

// Returns what the options say against each other, or nothing.
std::string Contradiction(const ExchangeBenchOptions& options) {
  if (options.elements() < uint64_t{options.servers} * options.shards) {
    return absl::StrCat("found ", options.elements(), " elements; allowed is at least one a shard");
  }
  if (!options.connect.empty() && options.connect.size() != options.servers) {
    return absl::StrCat("found ", options.connect.size(), " addresses in --connect; allowed are as many as --servers, ",
                        options.servers);
  }
  if (options.pusher_beside && options.workers != 1) return "--pusher-beside is for one worker";
  if (options.backward_ms > 0 && (options.pusher_beside || options.window != 1)) {
    return "--backward-ms is for a window of 1, and not for --pusher-beside";
  }
  const bool plain = options.pusher_beside || options.stalled_readers > 0 || options.serve || !options.connect.empty();
  if (options.security != "none" && plain) {
    return "--security is not for --pusher-beside, --stalled-readers, --serve and --connect";
  }
  return "";
}

}  // namespace

void AddDataPath(CLI::App& app, ExchangeBenchOptions& options) {
  app.add_option("--transport", options.transport, "How bytes travel")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "tcp", "unix", "shm"}));
  app.add_option("--wire", options.wire, "What gradients are encoded as; weights too if it is bf16")
      ->capture_default_str()
      ->type_name("fp32|bf16|fp16|int8|topk:FRACTION")
      ->check(WireMistake);
  app.add_option("--error-feedback", options.error_feedback,
                 "Whether what is rounded away goes out with the next gradient; auto: for int8 and topk")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_option("--security", options.security, "What protects the connections: nothing, a token, or TLS")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "token", "tls"}));
  app.add_option("--window", options.window, "Pushes that may be unanswered at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
}

std::optional<int> ParseExchangeBench(int argc, char** argv, ExchangeBenchOptions& options) {
  CLI::App app("Push + apply + pull of a whole model, with all of the semantics, beside a raw socket in turns.",
               "exchange_bench");
  AddModel(app, options);
  AddShape(app, options);
  AddDataPath(app, options);
  AddDistance(app, options);
  AddEffort(app, options.effort);
  if (const auto exit_code = Parse(app, argc, argv)) return exit_code;
  std::string mistake = Contradiction(options);
  if (mistake.empty()) mistake = std::string(MakeClientOptions(options, WorkerId(1)).status().message());
  if (mistake.empty()) return std::nullopt;
  std::fprintf(stderr, "exchange_bench: %s\n", mistake.c_str());
  return kExitUsage;
}

}  // namespace slackline::bench
