// The values of a checkpoint by their places in the model, whatever shards they were in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint.pb.h"
#include "common/checkpoint/shard_file.h"

namespace slackline::checkpoint {

// Errors: as ShardFileReader has them.
//
// Thread-safety: none.
class ModelReader {
 public:
  static absl::StatusOr<std::unique_ptr<ModelReader>> Open(const std::filesystem::path& path);

  const Manifest& manifest() const { return manifest_; }
  // Of the arrays, the weights first.
  const std::vector<std::string>& arrays() const { return arrays_; }
  // Elements [begin, begin + out.size()) of the model in array `array`. Arrays but the first have only the trained
  // ones.
  absl::Status Read(size_t array, uint64_t begin, absl::Span<float> out);
  // What the shard says of itself that has most of the elements [begin, end).
  absl::StatusOr<ShardHeader> HeaderOf(uint64_t begin, uint64_t end);

 private:
  ModelReader(std::filesystem::path path, Manifest manifest)
      : path_(std::move(path)), manifest_(std::move(manifest)), readers_(manifest_.files_size()) {}
  absl::StatusOr<ShardFileReader*> Reader(int file);

  const std::filesystem::path path_;
  const Manifest manifest_;
  std::vector<std::unique_ptr<ShardFileReader>> readers_;  // as manifest_.files(); null: not opened yet
  std::vector<std::string> arrays_;
};

}  // namespace slackline::checkpoint
