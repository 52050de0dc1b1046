// A reader that asks for the weights of a server and never takes them: what it holds back must not grow.
#pragma once

#include <memory>

#include "bench/exchange/cluster.h"
#include "bench/support/process.h"

namespace slackline::bench {

// In a process of its own, on all servers. Returns once its pulls are on their way.
std::unique_ptr<Child> StartStalledReader(const Cluster& cluster, uint32_t number);

}  // namespace slackline::bench
