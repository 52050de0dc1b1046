// Version of the protocol that the processes of a job speak with one another (protos/wire_types.proto, PeerVersion).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace slackline {

struct ProtocolVersion {
  // Raise `major` if a peer of the version before could misunderstand a message, and `minor` if fields are added.
  // tests/protos/released holds the fields that must stay.
  uint32_t major = 1;
  uint32_t minor = 4;
  std::string build;  // of the peer's program: "0.2.0 (1a2b3c4)"; empty if unknown
};

// Minor number from which servers take the learning rates of a push. Older ones ignore them.
inline constexpr uint32_t kMinorOfLearningRates = 2;
// Minor number from which the scheduler takes a script's optimizer settings. An older one ignores them.
inline constexpr uint32_t kMinorOfScriptOptimizer = 3;
// Minor number from which servers take changes of the set of members. Older ones take each for a whole set.
inline constexpr uint32_t kMinorOfMemberChanges = 4;

// Returns the version of this program.
ProtocolVersion OwnProtocol();

// Checks whether this program can work with `who`, for example "worker w-1".
//   kInvalidArgument  they have different major numbers; the message names both versions
absl::Status CheckProtocol(absl::string_view who, const ProtocolVersion& theirs,
                           const ProtocolVersion& own = OwnProtocol());

// Returns what to tell people of a peer with a newer minor number; empty for all others.
std::string NewerProtocol(absl::string_view who, const ProtocolVersion& theirs,
                          const ProtocolVersion& own = OwnProtocol());

// Read and set a message's field `version`, a PeerVersion. A peer that sends none speaks 1.0.
template <typename Message>
ProtocolVersion ProtocolOf(const Message& message) {
  if (!message.has_version()) return {.major = 1, .minor = 0, .build = {}};
  return {.major = message.version().major(), .minor = message.version().minor(), .build = message.version().build()};
}

template <typename Message>
void SetProtocol(Message& message) {
  const ProtocolVersion own = OwnProtocol();
  message.mutable_version()->set_major(own.major);
  message.mutable_version()->set_minor(own.minor);
  message.mutable_version()->set_build(own.build);
}

}  // namespace slackline
