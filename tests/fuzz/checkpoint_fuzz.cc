// Bytes that claim to be a part of a checkpoint: refused as broken, or read as far as their checksums are right.
#include <algorithm>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/checkpoint/folder.h"
#include "common/checkpoint/shard_file.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/memory_file.h"

namespace slackline::fuzz {
namespace {

void ReadManifestText(absl::string_view text) {
  const auto manifest = checkpoint::ParseManifest(std::string(text), "fuzz");
  SLACKLINE_CHECK(manifest.ok() || absl::IsDataLoss(manifest.status()));
}

// The checksum of the header is right, so that the header is looked at.
void ReadShard(BytesInput& input) {
  wire::CheckpointFile file;
  file.set_begin(input.TakeUpTo(8));
  file.set_end(file.begin() + input.TakeUpTo(64));
  std::string header(input.TakeBytes(input.Take<uint16_t>()));
  file.set_header_checksum(checkpoint::ChecksumOf(header));
  uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  const absl::string_view rest = input.TakeRest();
  bytes.append(rest.data(), rest.size());
  const MemoryFile memory(bytes);
  file.set_bytes(bytes.size());
  file.set_file(memory.name());
  const auto reader = checkpoint::ShardFileReader::Open("/proc/self/fd", file);
  if (!reader.ok()) {
    SLACKLINE_CHECK(absl::IsDataLoss(reader.status()));
    return;
  }
  const absl::Status whole = (*reader)->Verify();
  SLACKLINE_CHECK(whole.ok() || absl::IsDataLoss(whole));
  std::vector<float> out(std::min<uint64_t>(3, (*reader)->header().arrays(0).elements()));
  (*reader)->Read(0, 0, absl::MakeSpan(out)).IgnoreError();
}

}  // namespace
}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput input(data, size);
  if (input.TakeUpTo(1) == 0) {
    slackline::fuzz::ReadManifestText(input.TakeRest());
  } else {
    slackline::fuzz::ReadShard(input);
  }
  return 0;
}
