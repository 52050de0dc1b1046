// What exchange_bench is asked to measure.
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
  // What the trainers' model is made of: shards begin where tensors begin, as long as there are enough of them.
  uint64_t tensors = 1;
  uint32_t servers = 1;
  uint32_t shards = 8;  // a server
  uint32_t workers = 1;
  // Each server has a backup on this machine, and answers once that has what it answers.
  bool replicated = false;

  std::string transport = "auto";
  std::string wire = "fp32";
  std::string error_feedback = "auto";
  uint32_t window = 1;
  std::string optimizer = "sgd";
  // "none", "token" or "tls", with the files in `security_folder`, which the program makes.
  std::string security = "none";
  std::string security_folder;
  uint64_t staging_megabytes = 0;  // 0: what the server thinks best

  // What a step computes before its gradient is whole; 0: it is there at once.
  double backward_ms = 0;
  // A second worker that pushes at full speed; the first only pulls.
  bool pusher_beside = false;
  uint32_t stalled_readers = 0;
  // The servers' peaks against what they may use. Workers share one copy of their memory, so that the model can be big.
  bool memory = false;

  // Only the servers, until SIGTERM; and only the workers, for servers that run elsewhere.
  bool serve = false;
  std::string listen = "127.0.0.1";
  std::vector<std::string> connect;
  std::string connect_raw;

  uint64_t elements() const { return ElementsOfTensor() * tensors; }
  uint64_t ElementsOfTensor() const { return static_cast<uint64_t>(megabytes * 1e6) / sizeof(float) / tensors; }
  uint64_t bytes() const { return elements() * sizeof(float); }
  uint32_t members() const { return workers + (pusher_beside ? 1 : 0); }
};

// The options that say how the exchange is made; latency_bench has them too.
void AddDataPath(CLI::App& app, ExchangeBenchOptions& options);

// Returns the exit code with which the program is to end, or nothing when it is to go on.
std::optional<int> ParseExchangeBench(int argc, char** argv, ExchangeBenchOptions& options);

}  // namespace slackline::bench
