// A bidirectional gRPC stream that moves a model and steps on it, tuned as the data path is and without anything that
// makes it a parameter server: no staging, sequence numbers, versions or checks. The ceiling of the gRPC path.
//
// One round: the client sends `bytes` of gradient in chunks; the server takes an SGD step straight from each chunk's
// slices as it arrives and, after the last one, sends `bytes` of weights; the client copies those out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/support/process.h"
#include "bench/support/rate.h"

namespace slackline::bench {

struct BareShape {
  uint64_t bytes = 0;  // whole floats
  uint64_t chunk_bytes = 1 << 20;
};

// Listens on `listen` (host:0 or unix-abstract:NAME), sends its address over the channel, and serves streams of up to
// `bytes_max` with one thread, one stream at a time, until it is killed.
void ServeBareStreams(const std::string& listen, uint64_t bytes_max, const Channel& channel);

// Thread-safety: none; runs on the caller's thread.
class BareClient {
 public:
  static std::unique_ptr<BareClient> Connect(const std::string& address, const BareShape& shape);
  virtual ~BareClient() = default;

  // Rounds for at least `seconds`, `depth` of them begun and not ended at a time; all have ended on return.
  virtual Rounds Run(double seconds, uint32_t depth) = 0;
};

}  // namespace slackline::bench
