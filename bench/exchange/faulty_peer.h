// Peers that do wrong to a server for as long as they live, beside workers that do right.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/exchange/cluster.h"
#include "bench/support/process.h"

namespace slackline::bench {

enum class Fault {
  kStalled,     // readers that ask for all weights and take nothing
  kHalfOpen,    // connections that say nothing, or begin HTTP/2 and stop; streams without a Hello
  kFlood,       // small pushes that are refused, as fast as they can be sent
  kLargeFlood,  // large pushes that are refused when all of their bytes are there
  kNeverReads,  // pulls without end from a reader that reads none of the answers
};
inline constexpr Fault kFaults[] = {Fault::kStalled, Fault::kHalfOpen, Fault::kFlood, Fault::kLargeFlood,
                                    Fault::kNeverReads};
std::string Name(Fault fault);

// A process with such peers of each server, `peers` of them each, which begin again when a server has ended them. They
// have begun when this returns. Forks: before any gRPC in this process.
std::unique_ptr<Child> StartFaultyPeers(Fault fault, const Cluster& cluster, uint32_t peers);

}  // namespace slackline::bench
