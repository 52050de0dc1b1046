// Converts between the protocol's names of encodings and ours.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/codec/codec.h"
#include "parameter_server.pb.h"

namespace slackline {

inline wire::Encoding EncodingToWire(codec::Encoding encoding) { return static_cast<wire::Encoding>(encoding); }

// Returns the codec for reading a chunk with this encoding. A receiver needs no fraction for top-k: any number of pairs
// may come.
//   kInvalidArgument  no encoding has this number
inline absl::StatusOr<codec::Codec> CodecFromWire(wire::Encoding encoding) {
  if (encoding == wire::ENCODING_UNSPECIFIED) return codec::Codec{};
  for (const codec::EncodingFacts& facts : codec::AllEncodings()) {
    if (static_cast<int>(facts.encoding) != static_cast<int>(encoding)) continue;
    return codec::Codec{.encoding = facts.encoding, .fraction = facts.sparse ? 1.0 : 0.0};
  }
  return absl::InvalidArgumentError(absl::StrCat("encoding is ", static_cast<int>(encoding), "; allowed are ",
                                                 static_cast<int>(codec::AllEncodings().front().encoding), " to ",
                                                 static_cast<int>(codec::AllEncodings().back().encoding)));
}

}  // namespace slackline
