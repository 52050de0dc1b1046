// IDX files, plain and gzipped: refused with a reason, or as many values as the sides say.
#include "common/base/check.h"
#include "images/base/idx_file.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput input(data, size);
  const slackline::images::IdxRequest request = {.rank = static_cast<uint8_t>(1 + input.TakeUpTo(2)),
                                                 .keep_max = input.TakeUpTo(3)};
  const slackline::fuzz::MemoryFile file(input.TakeRest());
  const auto array = slackline::images::ReadIdxFile("/proc/self/fd", file.name(), request);
  if (!array.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(array.status()) && !array.status().message().empty());
    return 0;
  }
  SLACKLINE_CHECK(array->shape.size() == request.rank);
  SLACKLINE_CHECK(request.keep_max == 0 || array->kept <= request.keep_max);
  uint64_t values = array->kept;
  for (size_t side = 1; side < array->shape.size(); ++side) values *= array->shape[side];
  SLACKLINE_CHECK(array->values.size() == values);
  return 0;
}
