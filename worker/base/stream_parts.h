// Parts of a stream, as the scheduler leases them: wire::Stream, wire::PartLease and wire::PartPosition, without
// protobuf.
#pragma once

#include <cstdint>

namespace slackline::worker {

struct StreamFacts {
  uint32_t parts = 0;
  uint64_t fingerprint = 0;
  // Times that each part is read; 0: until the epochs are over.
  uint32_t passes = 0;
};

struct PartLease {
  uint64_t lease = 0;
  uint32_t part = 0;
  uint32_t pass = 0;
  // Position to read from.
  uint64_t records = 0;
};

struct PartPosition {
  uint64_t lease = 0;
  // Records of the part, from its beginning, that were trained.
  uint64_t records = 0;
  bool ended = false;

  friend bool operator==(const PartPosition&, const PartPosition&) = default;
};

}  // namespace slackline::worker
