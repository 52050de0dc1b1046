// CRC-32C (Castagnoli, RFC 3720), as TFRecord files use it.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace slackline::scheduler {

uint32_t Crc32c(absl::string_view bytes);

// Returns the checksum as TFRecord masks it, to be stored beside its own data.
uint32_t MaskedCrc32c(absl::string_view bytes);

}  // namespace slackline::scheduler
