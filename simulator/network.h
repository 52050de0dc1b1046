// The wires: how long bytes take from one process to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "simulator/worker_plan.h"

namespace slackline::simulator {

// Each process has a link with a direction out and one in. A transfer takes the sender's way out and, a latency later,
// the receiver's way in, each in the order of sending; the switches between them are never full.
//
// Thread-safety: none.
class Network {
 public:
  // Returns the endpoint's number.
  size_t Add(const LinkSpeed& link);

  struct Transfer {
    size_t from = 0;
    size_t to = 0;
    uint64_t bytes = 0;
  };
  // When the last byte arrives of what is sent now.
  absl::Time Send(const Transfer& transfer, absl::Time now);
  // One way, for a message too small to fill the wire.
  absl::Duration Latency(size_t from, size_t to) const { return ends_[from].link.latency + ends_[to].link.latency; }

  // Over all links, each byte once.
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
