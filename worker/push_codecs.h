// Which tensors are encoded how: the job's settings, laid over the model's flat vector.
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
    kAuto,  // for int8 and top-k
    kAlways,
    kNever,
  };
  struct Group {
    std::string match;  // a shell pattern
    codec::Codec codec;
  };

  // Of tensors that no group matches.
  codec::Codec codec;
  std::vector<Group> groups;  // the first that matches counts
  ErrorFeedback error_feedback = ErrorFeedback::kAuto;
};

// The runs of equal encoding, from the model's first element on. Averaged tensors are fp32.
//   kInvalidArgument  a group matches no trained tensor; names those that there are
absl::StatusOr<std::vector<CodecRun>> MakeCodecRuns(const PushCodecs& codecs, const std::vector<TensorInfo>& tensors);

}  // namespace slackline::worker
