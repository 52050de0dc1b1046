// A reader that asks a server for weights and never reads them. The data that the server holds back for it must not
// grow.
#pragma once

#include <memory>

#include "bench/exchange/cluster.h"
#include "bench/support/process.h"

namespace slackline::bench {

// Starts the reader in its own process, on all servers. Returns once its pulls are in flight.
std::unique_ptr<Child> StartStalledReader(const Cluster& cluster, uint32_t number);

}  // namespace slackline::bench
