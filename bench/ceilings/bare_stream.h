// A bidirectional gRPC stream that moves a model and steps on it. It is tuned like the data path but has nothing of a
// parameter server: no staging, sequence numbers, versions or checks. Its speed is the ceiling of the gRPC path.
//
// A round: the client sends `bytes` of gradient in chunks. The server takes an SGD step straight from each chunk's
// slices as the chunk arrives. After the last chunk it sends `bytes` of weights, and the client copies them out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/support/process.h"
#include "bench/support/rate.h"

namespace slackline::bench {

struct BareShape {
  uint64_t bytes = 0;  // a multiple of sizeof(float)
  uint64_t chunk_bytes = 1 << 20;
};

// Listens on `listen` (host:0 or unix-abstract:NAME) and sends the address over the channel. Then serves streams of up
// to `bytes_max` with one thread, one stream at a time, until the process is killed.
void ServeBareStreams(const std::string& listen, uint64_t bytes_max, const Channel& channel);

// Thread-safety: none; runs on the caller's thread.
class BareClient {
 public:
  static std::unique_ptr<BareClient> Connect(const std::string& address, const BareShape& shape);
  virtual ~BareClient() = default;

  // Runs rounds for at least `seconds`, with `depth` rounds in flight at a time. Every round has ended on return.
  virtual Rounds Run(double seconds, uint32_t depth) = 0;
};

}  // namespace slackline::bench
