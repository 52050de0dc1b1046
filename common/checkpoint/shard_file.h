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

// Returns the 64-bit XXH3 of the bytes.
uint64_t ChecksumOf(absl::string_view bytes);

// Returns the file name of a shard: "shard-00003.safetensors".
std::string ShardFileName(uint32_t shard);

// Writes a shard file from front to back and computes checksums on the way. The file appears under its name only when
// Finish() succeeds.
//
// Errors:        those of DurableFile.
// Thread-safety: none.
class ShardFileWriter {
 public:
  // `header` has everything except the checksums.
  static absl::StatusOr<std::unique_ptr<ShardFileWriter>> Create(const std::string& folder, ShardHeader header);
  ~ShardFileWriter();

  // Appends the next values of the arrays, one array after the other. Requires: the values do not cross from one array
  // into the next.
  absl::Status Append(absl::Span<const float> values);
  // Completes the file. Requires: all values of all arrays were appended.
  absl::StatusOr<wire::CheckpointFile> Finish();

 private:
  ShardFileWriter(const std::string& folder, ShardHeader header);
  absl::Status Begin();
  void EndBlock();

  ShardHeader header_;
  DurableFile file_;
  uint64_t header_bytes_ = 0;
  int array_ = 0;
  uint64_t in_array_ = 0;  // counted in elements
  const std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> hash_;
};

// Reads any part of a shard file. A block is used only after its checksum was verified.
//
// Errors of all calls:
//   kNotFound     the file does not exist
//   kDataLoss     the file is broken; says what was found and what was expected
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
  // Reads values [begin, begin + out.size()) of an array of the header. Requires: the array has them.
  absl::Status Read(int array, uint64_t begin, absl::Span<float> out);
  // Reads and checks the whole file.
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
  uint64_t data_ = 0;  // offset of the first array
  std::optional<std::pair<int, int>> loaded_;
  std::vector<float> block_;
};

}  // namespace slackline::checkpoint
