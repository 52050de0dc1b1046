// exchange_bench: push + apply + pull of a whole model through real servers and the real client, with all of the
// semantics (staging, sequence numbers, versions, the engine, the finite check, metrics), beside a raw socket in turns.
//
// Servers and workers are processes of their own; this one gives orders and measures from outside. GB are 10^9 bytes of
// float32, both directions counted, whatever the wire carries.
#include "bench/exchange/measure.h"
#include "bench/exchange/options.h"
#include "bench/exchange/secrets.h"
#include "bench/support/report.h"

namespace slackline::bench {
namespace {

int Main(int argc, char** argv) {
  ExchangeBenchOptions options;
  if (const auto exit_code = ParseExchangeBench(argc, argv, options)) return *exit_code;
  if (options.serve) {
    ServeUntilTold(options);
    return 0;
  }
  const Secrets secrets(options);
  Report report(options.effort.json);
  const auto measure = options.pusher_beside     ? MeasurePulls
                       : options.backward_ms > 0 ? MeasureBackward
                                                 : MeasureExchange;
  measure(options, report);
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }
