// Encoding of each tensor: the settings of the job, applied to the flat vector of the model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/codec.h"
#include "worker/client/push_encoder.h"
#include "worker/model/model.h"

namespace slackline::worker {

struct PushCodecs {
  enum class ErrorFeedback {
    kAuto,  // int8 and top-k only
    kAlways,
    kNever,
  };
  struct Group {
    std::string match;  // shell pattern
    codec::Codec codec;
  };

  // Encoding of tensors that no group matches.
  codec::Codec codec;
  std::vector<Group> groups;  // first match counts
  ErrorFeedback error_feedback = ErrorFeedback::kAuto;
};

// Returns the runs of equal encoding, from the first element of the model on. Averaged tensors are fp32.
//   kInvalidArgument  a group matches no trained tensor; names the trained tensors
absl::StatusOr<std::vector<CodecRun>> MakeCodecRuns(const PushCodecs& codecs, const std::vector<TensorInfo>& tensors);

}  // namespace slackline::worker
