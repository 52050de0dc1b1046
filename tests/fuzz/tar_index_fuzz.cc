// Tar files: refused with a reason, or members that lie within the file.
#include <cstdio>

#include "common/base/check.h"
#include "images/pictures/tar_index.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/memory_file.h"

namespace {

constexpr size_t kBlock = 512, kSumBegin = 148, kSumBytes = 8;

// Puts the right sum into each block, as if it were a header: else hardly an input would come further.
void Repair(std::string& tar) {
  for (size_t begin = 0; begin + kBlock <= tar.size(); begin += kBlock) {
    unsigned sum = ' ' * kSumBytes;
    for (size_t i = 0; i < kBlock; ++i) {
      if (i < kSumBegin || i >= kSumBegin + kSumBytes) sum += static_cast<uint8_t>(tar[begin + i]);
    }
    if (sum == ' ' * kSumBytes) continue;
    char text[kSumBytes] = "";
    std::snprintf(text, sizeof(text), "%06o", sum);
    tar.replace(begin + kSumBegin, kSumBytes, text, kSumBytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput input(data, size);
  const bool repaired = input.TakeUpTo(1) == 1;
  std::string tar(input.TakeRest());
  if (repaired) Repair(tar);
  const slackline::fuzz::MemoryFile file(tar);
  const std::string path = "/proc/self/fd/" + file.name();
  const auto members = slackline::images::pictures::ReadTarIndex(path);
  if (!members.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(members.status()) && !members.status().message().empty());
    return 0;
  }
  for (const auto& member : *members) {
    SLACKLINE_CHECK(member.offset + member.bytes <= tar.size());
    const auto part = slackline::images::pictures::ReadPart(path, member.offset, member.bytes);
    SLACKLINE_CHECK(part.ok() && *part == tar.substr(member.offset, member.bytes));
  }
  return 0;
}
