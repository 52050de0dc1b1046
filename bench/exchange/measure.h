// The measurements of exchange_bench. Measurement and opponent alternate in each repeat.
#pragma once

#include "bench/exchange/options.h"
#include "bench/support/report.h"

namespace slackline::bench {

// Measures push + apply + pull by all workers at once, beside the opponent. With --memory, also the servers' peak
// memory afterwards.
void MeasureExchange(const ExchangeBenchOptions& options, Report& report);
// Measures steps after a backward pass: gradients leave after the backward pass in one case, during it in the other.
void MeasureBackward(const ExchangeBenchOptions& options, Report& report);
// Measures a pull alone, and beside a worker that pushes at full speed.
void MeasurePulls(const ExchangeBenchOptions& options, Report& report);
// Prints the addresses, then serves until SIGTERM or SIGINT.
void ServeUntilTold(const ExchangeBenchOptions& options);

}  // namespace slackline::bench
