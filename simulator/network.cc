#include "simulator/network.h"

#include <algorithm>

namespace slackline::simulator {
namespace {

absl::Duration WireTime(const LinkSpeed& link, uint64_t bytes) {
  if (link.bytes_per_second <= 0) return absl::ZeroDuration();
  return absl::Seconds(static_cast<double>(bytes) / link.bytes_per_second);
}

}  // namespace

size_t VirtualNetwork::Add(const LinkSpeed& link) {
  ends_.push_back({link});
  return ends_.size() - 1;
}

absl::Time VirtualNetwork::Send(const Transfer& transfer, absl::Time now) {
  End& from = ends_[transfer.from];
  End& to = ends_[transfer.to];
  const absl::Duration latency = Latency(transfer.from, transfer.to);
  const absl::Time begin = std::max(now, from.out_free);
  from.out_free = begin + WireTime(from.link, transfer.bytes);
  // Bytes flow on while others still leave: the way in begins with the first of them.
  const absl::Time in = std::max(begin + latency, to.in_free) + WireTime(to.link, transfer.bytes);
  to.in_free = std::max(in, from.out_free + latency);
  bytes_ += transfer.bytes;
  ++messages_;
  return to.in_free;
}

}  // namespace slackline::simulator
