// The options of exchange_bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include "bench/support/command_line.h"

namespace slackline::bench {

struct ExchangeBenchOptions {
  Effort effort;
  double megabytes = 100;
  // Number of tensors of the trainers' model. Shards begin on tensor boundaries if there are at least as many tensors
  // as shards.
  uint64_t tensors = 1;
  uint32_t servers = 1;
  uint32_t shards = 8;  // per server
  uint32_t workers = 1;
  // True if each server has a backup on this machine. A server then answers only after the backup has the data.
  bool replicated = false;

  std::string transport = "auto";
  std::string wire = "fp32";
  std::string error_feedback = "auto";
  uint32_t window = 1;
  std::string optimizer = "sgd";
  // Security of the exchange: "none", "token" or "tls", with the files in `security_folder`, which the program creates.
  std::string security = "none";
  std::string security_folder;
  uint64_t staging_megabytes = 0;  // 0: the server's default

  // Duration of a step's computation before its gradient is complete. 0: the gradient is there at once.
  double backward_ms = 0;
  // True if a second worker pushes at full speed. The first worker then only pulls.
  bool pusher_beside = false;
  uint32_t stalled_readers = 0;
  // True to compare the servers' peak memory with their limit. Workers then share one copy of their memory, so that the
  // model can be large.
  bool memory = false;

  // `serve` runs only the servers, until SIGTERM. `connect` runs only the workers, for servers that run elsewhere.
  bool serve = false;
  std::string listen = "127.0.0.1";
  std::vector<std::string> connect;
  std::string connect_raw;

  uint64_t elements() const { return ElementsOfTensor() * tensors; }
  uint64_t ElementsOfTensor() const { return static_cast<uint64_t>(megabytes * 1e6) / sizeof(float) / tensors; }
  uint64_t bytes() const { return elements() * sizeof(float); }
  uint32_t members() const { return workers + (pusher_beside ? 1 : 0); }
};

// Adds the options of the data path, which latency_bench has too.
void AddDataPath(CLI::App& app, ExchangeBenchOptions& options);

// Returns the exit code if the program must end now, otherwise nothing.
std::optional<int> ParseExchangeBench(int argc, char** argv, ExchangeBenchOptions& options);

}  // namespace slackline::bench
