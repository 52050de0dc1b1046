#include "worker/settings/push_codecs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/parameter_groups.h"

namespace slackline::worker {
namespace {

bool Matches(const PushCodecs::Group& group, const TensorInfo& tensor) {
  return tensor.trained && MatchesName(group.match, tensor.name);
}

absl::Status CheckGroups(const PushCodecs& codecs, const std::vector<TensorInfo>& tensors) {
  for (size_t i = 0; i < codecs.groups.size(); ++i) {
    const PushCodecs::Group& group = codecs.groups[i];
    const auto matches = [&](const TensorInfo& tensor) { return Matches(group, tensor); };
    if (std::any_of(tensors.begin(), tensors.end(), matches)) continue;
    std::vector<std::string> names;
    for (const TensorInfo& tensor : tensors) {
      if (tensor.trained) names.push_back(tensor.name);
    }
    return absl::InvalidArgumentError(absl::StrCat("wire.groups[", i, "].match: found \"", group.match,
                                                   "\", which no trained tensor is called; they are ",
                                                   FirstNames(names)));
  }
  return absl::OkStatus();
}

codec::Codec CodecOf(const PushCodecs& codecs, const TensorInfo& tensor) {
  if (!tensor.trained) return {};
  for (const PushCodecs::Group& group : codecs.groups) {
    if (Matches(group, tensor)) return group.codec;
  }
  return codecs.codec;
}

bool NeedsFeedback(PushCodecs::ErrorFeedback setting, const codec::Codec& codec) {
  const bool coarse = FactsOf(codec).coarse;
  const bool lossy = codec.encoding != codec::Encoding::kFp32;
  return setting == PushCodecs::ErrorFeedback::kAlways ? lossy : setting == PushCodecs::ErrorFeedback::kAuto && coarse;
}

}  // namespace

absl::StatusOr<std::vector<CodecRun>> MakeCodecRuns(const PushCodecs& codecs, const std::vector<TensorInfo>& tensors) {
  if (absl::Status groups = CheckGroups(codecs, tensors); !groups.ok()) return groups;
  std::vector<CodecRun> runs;
  for (const TensorInfo& tensor : tensors) {
    const codec::Codec codec = CodecOf(codecs, tensor);
    if (runs.empty() || runs.back().codec != codec) {
      runs.push_back({0, codec, NeedsFeedback(codecs.error_feedback, codec)});
    }
    runs.back().elements += tensor.elements();
  }
  return runs;
}

}  // namespace slackline::worker
