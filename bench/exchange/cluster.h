// The servers of one measurement, and what a scheduler would tell them.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/exchange/options.h"
#include "bench/support/process.h"
#include "worker/client/client.h"

namespace slackline::bench {

// Thread-safety: none. Forks: before any gRPC in this process.
class Cluster {
 public:
  // Starts servers, or takes those of --connect, and gives them their shards and members.
  explicit Cluster(const ExchangeBenchOptions& options);

  const worker::ShardMap& map() const { return map_; }
  // Of the servers that run here.
  std::vector<pid_t> pids() const;

 private:
  worker::ShardMap map_;
  std::vector<std::unique_ptr<Child>> servers_, backups_;
};

// Starts one server, or a backup of it, and returns the process; its channel tells the address.
std::unique_ptr<Child> StartServer(const ExchangeBenchOptions& options, uint32_t number, bool backup = false);
// How to reach a server that has just been started.
worker::ServerInfo InfoOf(const Child& server, uint32_t number);

}  // namespace slackline::bench
