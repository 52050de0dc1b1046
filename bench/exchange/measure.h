// The measurements of exchange_bench, each repeated in turns with its opponent.
#pragma once

#include "bench/exchange/options.h"
#include "bench/support/report.h"

namespace slackline::bench {

// Push + apply + pull by all workers at once beside the opponent; with --memory the servers' peaks after it.
void MeasureExchange(const ExchangeBenchOptions& options, Report& report);
// Steps after a backward: gradients that leave when it is over, and while it goes on.
void MeasureBackward(const ExchangeBenchOptions& options, Report& report);
// A pull alone, and beside a worker that pushes at full speed.
void MeasurePulls(const ExchangeBenchOptions& options, Report& report);
// Serves until SIGTERM or SIGINT; prints the addresses first.
void ServeUntilTold(const ExchangeBenchOptions& options);

}  // namespace slackline::bench
