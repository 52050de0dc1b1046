// Converts between a snapshot and the message that describes it.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/store/snapshot.h"
#include "snapshot.pb.h"

namespace slackline::ps {

inline constexpr uint32_t kManifestFormat = 1;

snapshot::Manifest ToManifest(const ShardIdentity& identity, const ShardSnapshot& snapshot, uint64_t bytes);

// Checks the manifest of a snapshot.
//   kDataLoss            its fields contradict each other
//   kFailedPrecondition  it is of another job or shard, or of a format that is not known here
absl::Status CheckManifest(const ShardIdentity& identity, const snapshot::Manifest& manifest);

snapshot::Answer ToMessage(const Answer& answer);
// Converts the message of an answer.
//   kDataLoss  its reason is not known here
absl::StatusOr<Answer> FromMessage(const snapshot::Answer& answer);

// Requires: CheckManifest().
KeptSnapshot ToKept(uint64_t id, const snapshot::Manifest& manifest);
EngineState ToEngineState(const snapshot::Manifest& manifest);
ShardProgress ToProgress(const snapshot::Manifest& manifest);

}  // namespace slackline::ps
