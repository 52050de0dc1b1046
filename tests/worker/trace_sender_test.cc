#include "worker/base/trace_sender.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace slackline::worker::trace_sender_test {
namespace {

using testing::HasSubstr;

// Answers with the statuses that were given, the last one again and again.
class Collector {
 public:
  explicit Collector(std::vector<absl::Status> answers) : answers_(std::move(answers)) {}

  absl::Status Take(const std::string& json) {
    absl::MutexLock lock(&mutex_);
    taken_.push_back(json);
    return answers_[std::min(taken_.size(), answers_.size()) - 1];
  }
  std::vector<std::string> WaitFor(size_t messages) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, messages]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return taken_.size() >= messages; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(30)));
    return taken_;
  }

 private:
  const std::vector<absl::Status> answers_;
  absl::Mutex mutex_;
  std::vector<std::string> taken_ ABSL_GUARDED_BY(mutex_);
};

void AddStep(Trace& trace, int64_t number) {
  static const uint32_t row = 1;
  const absl::Time end = trace.Now();
  trace.Add(row, {"step", number}, end - absl::Milliseconds(1), end);
}

TEST(TraceSender, SendsWhileTheTraceGrows) {
  Trace trace("worker-1", 0, Trace::kNewsMax);
  trace.AddRow("trainer");
  Collector collector({absl::OkStatus()});
  TraceSender sender(
      trace, "worker-1", "first", [&](const std::string& json) { return collector.Take(json); }, absl::Milliseconds(1));
  AddStep(trace, 1);
  EXPECT_THAT(collector.WaitFor(1)[0], HasSubstr("\"step 1\""));
  AddStep(trace, 2);
  EXPECT_THAT(collector.WaitFor(2)[1], HasSubstr("\"step 2\""));
}

TEST(TraceSender, TriesAgainOnlyIfThatMayHelp) {
  Trace trace("worker-1", 0, Trace::kNewsMax);
  trace.AddRow("trainer");
  Collector collector({absl::UnavailableError("503"), absl::FailedPreconditionError("400"), absl::OkStatus()});
  TraceSender sender(
      trace, "worker-1", "first", [&](const std::string& json) { return collector.Take(json); }, absl::Milliseconds(1));
  AddStep(trace, 1);
  EXPECT_THAT(collector.WaitFor(2), testing::Each(HasSubstr("\"step 1\"")));
  AddStep(trace, 2);
  const std::string last = collector.WaitFor(3)[2];
  EXPECT_THAT(last, testing::AllOf(HasSubstr("\"step 2\""), testing::Not(HasSubstr("\"step 1\""))));
}

TEST(TraceSender, EndSendsTheRestAndWaitsForNobody) {
  Trace trace("worker-1", 0, Trace::kNewsMax);
  trace.AddRow("trainer");
  Collector collector({absl::OkStatus()}), silent({absl::UnavailableError("nobody listens")});
  {
    TraceSender sender(
        trace, "worker-1", "first", [&](const std::string& json) { return collector.Take(json); }, absl::Hours(1));
    AddStep(trace, 1);
  }
  EXPECT_EQ(collector.WaitFor(1).size(), 1u);
  const absl::Time begin = absl::Now();
  {
    TraceSender sender(
        trace, "worker-1", "first", [&](const std::string& json) { return silent.Take(json); }, absl::Hours(1));
    AddStep(trace, 2);
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

}  // namespace
}  // namespace slackline::worker::trace_sender_test
