// The servers of one measurement. This code does for them what a scheduler would do.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/exchange/options.h"
#include "bench/support/process.h"
#include "worker/client/client.h"

namespace slackline::bench {

// Thread-safety: none.
// Forks, so create it before any gRPC in this process.
class Cluster {
 public:
  // Starts servers, or uses those of --connect, and gives them their shards and members.
  explicit Cluster(const ExchangeBenchOptions& options);

  const worker::ShardMap& map() const { return map_; }
  // Process ids of the servers that run on this machine.
  std::vector<pid_t> pids() const;

 private:
  worker::ShardMap map_;
  std::vector<std::unique_ptr<Child>> servers_, backups_;
};

// Starts one server, or its backup, and returns the process. The process sends its address over its channel.
std::unique_ptr<Child> StartServer(const ExchangeBenchOptions& options, uint32_t number, bool backup = false);
// Returns the addresses of a server that was just started.
worker::ServerInfo InfoOf(const Child& server, uint32_t number);

}  // namespace slackline::bench
