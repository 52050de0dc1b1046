// Files of weights: refused with a reason and without a change, or taken whole.
#include "common/base/check.h"
#include "tests/fuzz/bytes_input.h"
#include "worker/model/weights/load_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using slackline::worker::TensorInfo;
  const std::vector<TensorInfo> tensors = {{.name = "conv.weight", .shape = {2}, .offset = 0},
                                           {.name = "fc.weight", .shape = {2, 2}, .offset = 2},
                                           {.name = "fc.bias", .shape = {2}, .offset = 6}};
  const std::vector<float> before(8, -1);
  std::vector<float> flat = before;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto kept = slackline::worker::TakeWeights(bytes, tensors, absl::MakeSpan(flat));
  if (!kept.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(kept.status()) && !kept.status().message().empty());
    SLACKLINE_CHECK(flat == before);
    return 0;
  }
  for (const float value : flat) SLACKLINE_CHECK(value - value == 0);
  return 0;
}
