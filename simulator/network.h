// The simulated network: computes how long bytes take from one process to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "simulator/worker_plan.h"

namespace slackline::simulator {

// Each process has a link with an outgoing and an incoming direction. A transfer occupies the sender's outgoing
// direction and, a latency later, the receiver's incoming direction, each in the order of sending. The switches between
// them are never full.
//
// Thread-safety: none.
class VirtualNetwork {
 public:
  // Returns the endpoint's number.
  size_t Add(const LinkSpeed& link);

  struct Transfer {
    size_t from = 0;
    size_t to = 0;
    uint64_t bytes = 0;
  };
  // Sends `transfer` now. Returns the time at which its last byte arrives.
  absl::Time Send(const Transfer& transfer, absl::Time now);
  // Returns the one-way latency of a message that is too small to fill the wire.
  absl::Duration Latency(size_t from, size_t to) const { return ends_[from].link.latency + ends_[to].link.latency; }

  // Returns the bytes over all links; each byte counts once.
  uint64_t bytes() const { return bytes_; }
  uint64_t messages() const { return messages_; }

 private:
  struct End {
    LinkSpeed link;
    absl::Time out_free = absl::InfinitePast();
    absl::Time in_free = absl::InfinitePast();
  };

  std::vector<End> ends_;
  uint64_t bytes_ = 0;
  uint64_t messages_ = 0;
};

}  // namespace slackline::simulator
