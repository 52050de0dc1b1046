// Reads the values of a checkpoint by their position in the model, whatever shards hold them. Errors are those of
// ShardFileReader.
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

//
// Thread-safety: none.
class ModelReader {
 public:
  static absl::StatusOr<std::unique_ptr<ModelReader>> Open(const std::filesystem::path& path);

  const Manifest& manifest() const { return manifest_; }
  // Names of the arrays, the weights first.
  const std::vector<std::string>& arrays() const { return arrays_; }
  // Reads elements [begin, begin + out.size()) of the model from array `array`. The weights and the averaged weights
  // have all elements; other arrays have only the trained ones.
  absl::Status Read(size_t array, uint64_t begin, absl::Span<float> out);
  // Returns the header of the shard that holds most of the elements [begin, end).
  absl::StatusOr<ShardHeader> HeaderOf(uint64_t begin, uint64_t end);

 private:
  ModelReader(std::filesystem::path path, Manifest manifest)
      : path_(std::move(path)), manifest_(std::move(manifest)), readers_(manifest_.files_size()) {}
  absl::StatusOr<ShardFileReader*> Reader(int file);

  const std::filesystem::path path_;
  const Manifest manifest_;
  std::vector<std::unique_ptr<ShardFileReader>> readers_;  // same order as manifest_.files(); null: not opened yet
  std::vector<std::string> arrays_;
};

}  // namespace slackline::checkpoint
