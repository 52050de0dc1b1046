#include "common/storage/checksum.h"

#include <xxhash.h>

#include "common/base/check.h"

namespace slackline {

uint64_t ChecksumOf(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

RunningChecksum::RunningChecksum() : state_(XXH3_createState(), [](XXH3_state_s* state) { XXH3_freeState(state); }) {
  SLACKLINE_CHECK(state_ != nullptr);
  XXH3_64bits_reset(state_.get());
}

void RunningChecksum::Add(const void* data, size_t size) { XXH3_64bits_update(state_.get(), data, size); }

uint64_t RunningChecksum::value() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace slackline
