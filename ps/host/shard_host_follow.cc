// A shard whose steps are taken elsewhere: the backup's copy.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/byte_segments.h"
#include "common/check.h"
#include "common/checkpoint/shard_file.h"
#include "ps/host/shard_host.h"

namespace slackline::ps {

absl::Status ShardHost::Adopt(const ReadSnapshot& read) {
  absl::StatusOr<EngineState> engine = read(state_);
  if (!engine.ok()) return engine.status();
  version_ = engine->version;
  followed_.Adopt(*std::move(engine));
  return absl::OkStatus();
}

absl::Status ShardHost::Follow(const RecordedStep& step) {
  SLACKLINE_CHECK(followed_.adopted() && step.push != nullptr);
  const Version next = {version_.lineage, version_.number + 1};
  if (step.version != next) {
    return absl::InternalError(absl::StrCat("shard ", config_.shard.value(), " follows at version ", ToString(version_),
                                            ", and the step is to version ", ToString(step.version)));
  }
  const Contribution contribution = {step.push->pieces(), step.weight, step.gradient_norm, {}};
  state_.Apply({&contribution, 1}, step.arguments);
  version_ = step.version;
  followed_.Stepped(step.version, step.arguments.samples);
  for (const auto& [sender, answer] : step.answers) followed_.Answered(sender, answer);
  return absl::OkStatus();
}

uint64_t ShardHost::Checksum() const {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  const ShardView view = state_.Snapshot();
  uint64_t sum = version_.number;
  for (size_t chunk = 0; chunk < view.weights.chunks(); ++chunk) {
    const absl::Span<const std::byte> bytes = AsBytes(view.weights.chunk(chunk));
    sum = sum * kOdd + checkpoint::ChecksumOf({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return sum;
}

absl::Status ShardHost::Compare(const Version& version, uint64_t checksum) const {
  SLACKLINE_CHECK(followed_.adopted());
  const uint64_t here = Checksum();
  if (version == version_ && checksum == here) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("shard ", config_.shard.value(), " is at version ", ToString(version_),
                                          " with checksum ", absl::Hex(here), " here, and at version ",
                                          ToString(version), " with ", absl::Hex(checksum), " there"));
}

void ShardHost::Promote(Lineage lineage) {
  SLACKLINE_CHECK(followed_.adopted());
  engine_.Restore(followed_.Finish(), lineage);
  version_ = engine_.version();
  FirstSnapshotTried();
}

}  // namespace slackline::ps
