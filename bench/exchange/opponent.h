// The opponent of the exchange: it moves the same bytes both ways by the same transport and does nothing else. Exchange
// and opponent alternate.
#pragma once

#include <memory>
#include <string>

#include "bench/exchange/options.h"
#include "bench/support/report.h"

namespace slackline::bench {

class Opponent {
 public:
  // Starts raw TCP, a raw Unix socket, or memcpy for shared memory. Returns null if the servers run elsewhere and no
  // raw peer was named. Forks, so call it before any gRPC in this process.
  static std::unique_ptr<Opponent> Start(const ExchangeBenchOptions& options);
  virtual ~Opponent() = default;

  // Measures once: rounds_per_s, gb_per_s, cpu_s_per_gb.
  virtual Row Measure(double seconds) = 0;
};

}  // namespace slackline::bench
