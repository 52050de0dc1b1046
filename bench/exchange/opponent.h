// What the exchange is raced against in turns: the same bytes both ways by the same means, without anything else.
#pragma once

#include <memory>
#include <string>

#include "bench/exchange/options.h"
#include "bench/support/report.h"

namespace slackline::bench {

class Opponent {
 public:
  // Raw TCP, a raw Unix socket, or memcpy for shared memory. Null when the servers are elsewhere and no raw peer was
  // named. Forks: before any gRPC in this process.
  static std::unique_ptr<Opponent> Start(const ExchangeBenchOptions& options);
  virtual ~Opponent() = default;

  // One measurement: rounds_per_s, gb_per_s, cpu_s_per_gb.
  virtual Row Measure(double seconds) = 0;
};

}  // namespace slackline::bench
