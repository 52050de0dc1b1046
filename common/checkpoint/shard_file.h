// A shard's part of a checkpoint: one file, which protos/checkpoint.proto describes.
//
//   file   := header_bytes:u64le header data        (safetensors)
//   header := JSON object, padded with spaces
//   data   := arrays without gaps: little-endian float32
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint.pb.h"
#include "common/storage/durable_file.h"

struct XXH3_state_s;

namespace slackline::checkpoint {

inline constexpr uint32_t kShardFormat = 1;
inline constexpr uint64_t kBlockElements = 1 << 22;

// XXH3, 64 bits.
uint64_t ChecksumOf(absl::string_view bytes);

// "shard-00003.safetensors"
std::string ShardFileName(uint32_t shard);

// Writes front to back, with checksums on the way; nothing is there under the file's name before Finish().
//
// Errors: as DurableFile has them.
// Thread-safety: none.
class ShardFileWriter {
 public:
  // `header`: all but the checksums.
  static absl::StatusOr<std::unique_ptr<ShardFileWriter>> Create(const std::string& folder, ShardHeader header);
  ~ShardFileWriter();

  // The next values of the arrays, one array after the other. Requires: they do not cross from one array into the next.
  absl::Status Append(absl::Span<const float> values);
  // Requires: all values of all arrays were appended.
  absl::StatusOr<wire::CheckpointFile> Finish();

 private:
  ShardFileWriter(const std::string& folder, ShardHeader header);
  absl::Status Begin();
  void EndBlock();

  ShardHeader header_;
  DurableFile file_;
  uint64_t header_bytes_ = 0;
  int array_ = 0;
  uint64_t in_array_ = 0;  // elements
  const std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> hash_;
};

// Reads any part, and believes no block before its checksum was right.
//
// Errors of all calls:
//   kNotFound     there is no such file
//   kDataLoss     it is broken; says what was found and what it had
//   kUnavailable  the file system refuses
// Thread-safety: none.
class ShardFileReader {
 public:
  static absl::StatusOr<std::unique_ptr<ShardFileReader>> Open(const std::string& folder,
                                                               const wire::CheckpointFile& file);
  ~ShardFileReader();
  ShardFileReader(const ShardFileReader&) = delete;
  ShardFileReader& operator=(const ShardFileReader&) = delete;

  const ShardHeader& header() const { return header_; }
  // Values [begin, begin + out.size()) of an array of the header. Requires: it has them.
  absl::Status Read(int array, uint64_t begin, absl::Span<float> out);
  // Reads all of it.
  absl::Status Verify();

 private:
  ShardFileReader(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status ReadBytes(uint64_t offset, void* out, size_t size) const;
  absl::Status ReadHeader(const wire::CheckpointFile& file);
  absl::Status CheckHeader(const wire::CheckpointFile& file) const;
  absl::Status Load(int array, int block);

  const std::string path_;
  const int descriptor_;
  ShardHeader header_;
  uint64_t data_ = 0;  // where the first array begins
  std::optional<std::pair<int, int>> loaded_;
  std::vector<float> block_;
};

}  // namespace slackline::checkpoint
