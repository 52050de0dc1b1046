// A scheduler under any sequence of requests and time: it survives, and hands out only work that makes sense.
#include "tests/fuzz/scheduler_history.h"
#include "tests/fuzz/text_input.h"

namespace slackline::fuzz {

std::unique_ptr<google::protobuf::Message> NewInput() { return std::make_unique<SchedulerHistory>(); }

}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::SchedulerHistory history;
  if (!slackline::fuzz::ParseText(data, size, history)) return 0;
  history.clear_saved();
  slackline::fuzz::Play(history);
  return 0;
}
