// Writes weights as safetensors, which Python loads with safetensors.torch.load_file and load_state_dict.
//
//   file   := header_bytes:u64le header data
//   header := JSON object, padded with spaces to a multiple of 8 bytes:
//             {"NAME": {"dtype": "F32"|"I64", "shape": [...], "data_offsets": [begin, end]}, ...}
//   data   := the tensors without gaps; offsets count from its first byte
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Writes `flat`, which `tensors` describe, to `path`: complete and durable, or not at all. PyTorch's batch
// normalisation also counts its batches in an integer that takes no part in training; that integer is written as 0.
// `metadata` is free text for people.
//   kInvalidArgument  the tensors do not cover `flat` without gaps
//   kResourceExhausted, kUnavailable  as DurableFile
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                              absl::Span<const float> flat, const std::map<std::string, std::string>& metadata = {});

}  // namespace slackline::worker
