// Converts between the protocol's names of encodings and ours.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/codec/codec.h"
#include "parameter_server.pb.h"

namespace slackline {

inline wire::Encoding EncodingToWire(codec::Encoding encoding) {
  switch (encoding) {
    case codec::Encoding::kFp32:
      return wire::ENCODING_FP32;
    case codec::Encoding::kBf16:
      return wire::ENCODING_BF16;
    case codec::Encoding::kFp16:
      return wire::ENCODING_FP16;
    case codec::Encoding::kInt8:
      return wire::ENCODING_INT8;
    case codec::Encoding::kTopK:
      return wire::ENCODING_TOPK;
  }
  return wire::ENCODING_UNSPECIFIED;
}

// Returns the codec for reading a chunk with this encoding. A receiver needs no fraction for top-k: any number of pairs
// may come.
//   kInvalidArgument  no encoding has this number
inline absl::StatusOr<codec::Codec> CodecFromWire(wire::Encoding encoding) {
  switch (encoding) {
    case wire::ENCODING_UNSPECIFIED:
    case wire::ENCODING_FP32:
      return codec::Codec{.encoding = codec::Encoding::kFp32};
    case wire::ENCODING_BF16:
      return codec::Codec{.encoding = codec::Encoding::kBf16};
    case wire::ENCODING_FP16:
      return codec::Codec{.encoding = codec::Encoding::kFp16};
    case wire::ENCODING_INT8:
      return codec::Codec{.encoding = codec::Encoding::kInt8};
    case wire::ENCODING_TOPK:
      return codec::Codec{.encoding = codec::Encoding::kTopK, .fraction = 1};
    default:
      return absl::InvalidArgumentError(absl::StrCat("encoding is ", static_cast<int>(encoding), "; allowed are ",
                                                     static_cast<int>(wire::ENCODING_FP32), " to ",
                                                     static_cast<int>(wire::ENCODING_TOPK)));
  }
}

}  // namespace slackline
