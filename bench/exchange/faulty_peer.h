// Peers that misuse a server as long as they live, beside correct workers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/exchange/cluster.h"
#include "bench/support/process.h"

namespace slackline::bench {

enum class Fault {
  kStalled,     // readers that ask for all weights and read none
  kHalfOpen,    // connections that stay silent or begin HTTP/2 and stop; streams without a Hello
  kFlood,       // small pushes that the server refuses, sent as fast as possible
  kLargeFlood,  // large pushes that the server refuses once all of their bytes have arrived
  kNeverReads,  // endless pulls from a reader that reads no answer
};
inline constexpr Fault kFaults[] = {Fault::kStalled, Fault::kHalfOpen, Fault::kFlood, Fault::kLargeFlood,
                                    Fault::kNeverReads};
std::string Name(Fault fault);

// Starts a process with `peers` such peers of each server. A peer starts again whenever a server ends its stream or
// connection. The peers have begun when this returns. Forks, so call it before any gRPC in this process.
std::unique_ptr<Child> StartFaultyPeers(Fault fault, const Cluster& cluster, uint32_t peers);

}  // namespace slackline::bench
