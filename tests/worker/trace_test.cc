#include "worker/base/trace.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "absl/time/clock.h"
#include "nlohmann/json.hpp"

namespace slackline::worker::trace_test {
namespace {

const absl::Time kBegin = absl::UnixEpoch() + absl::Hours(1);

absl::Time At(int microseconds) { return kBegin + absl::Microseconds(microseconds); }

nlohmann::json Read(Trace& trace) {
  std::ostringstream out;
  trace.WriteTo(out);
  return nlohmann::json::parse(out.str());
}

TEST(Trace, EventsAreAsTheViewersReadThem) {
  Trace trace("worker-3");
  const uint32_t row = trace.AddRow("device 0");
  trace.Add(row, {"reduce bucket", 2}, At(40), At(50));
  trace.Add(row, {"backward"}, At(40), At(80));
  trace.AddOverlapping({"push shard", 7}, At(60), At(90));
  const nlohmann::json parsed = Read(trace);
  EXPECT_EQ(parsed["otherData"]["events_not_kept"], 0);
  const nlohmann::json expected = nlohmann::json::parse(R"([
    {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "worker-3"}},
    {"ph": "M", "pid": 0, "tid": 1, "name": "thread_name", "args": {"name": "device 0"}},
    {"ph": "X", "pid": 0, "tid": 1, "name": "backward", "ts": 0.0, "dur": 40.0},
    {"ph": "X", "pid": 0, "tid": 1, "name": "reduce bucket 2", "ts": 0.0, "dur": 10.0},
    {"ph": "b", "pid": 0, "tid": 0, "cat": "push shard", "id": 2, "name": "push shard 7", "ts": 20.0},
    {"ph": "e", "pid": 0, "tid": 0, "cat": "push shard", "id": 2, "name": "push shard 7", "ts": 50.0}])");
  EXPECT_EQ(parsed["traceEvents"], expected) << parsed.dump(1);
}

TEST(Trace, SaysWhenItsFirstEventWasByTheWallClock) {
  Trace trace("worker-0");
  const uint32_t row = trace.AddRow("trainer");
  const absl::Time begin = trace.Now(), wall = absl::Now();
  trace.Add(row, {"later"}, begin + absl::Minutes(5), begin + absl::Minutes(6));
  trace.Add(row, {"first"}, begin - absl::Hours(1), begin);
  const std::string began = Read(trace)["otherData"]["began_unix_ns"];
  const absl::Duration off = absl::FromUnixNanos(std::stoll(began)) - (wall - absl::Hours(1));
  EXPECT_LT(absl::AbsDuration(off), absl::Minutes(1)) << off;
}

TEST(Trace, KeepsNoMoreThanItMayAndSaysHowManyCame) {
  Trace trace("worker-0", /*events_max=*/3);
  const TraceRow row = AddRow(&trace, "trainer");
  for (int i = 0; i < 5; ++i) TraceSpan(row, {"step", i});
  const nlohmann::json parsed = Read(trace);
  EXPECT_EQ(parsed["otherData"]["events_not_kept"], 2);
  EXPECT_EQ(parsed["traceEvents"].size(), 2u + 3u);
}

TEST(Trace, NothingIsRecordedNowhere) {
  TraceSpan span(AddRow(nullptr, "trainer"), {"step"});
  span.Next({"another"});
}

TEST(Trace, SpansThatFollowEachOtherLeaveNoGap) {
  Trace trace("worker-0");
  {
    TraceSpan span(AddRow(&trace, "device 0"), {"forward"});
    span.Next({"backward"});
  }
  const nlohmann::json events = Read(trace)["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2]["name"], "forward");
  EXPECT_EQ(events[3]["name"], "backward");
  EXPECT_NEAR(events[2]["ts"].get<double>() + events[2]["dur"].get<double>(), events[3]["ts"].get<double>(), 1e-3);
}

TEST(Trace, FilesOfWorkersDiffer) {
  EXPECT_EQ(TracePath("/a/trace.json", "worker-2"), "/a/trace-worker-2.json");
  EXPECT_EQ(TracePath("/a.b/trace", "worker-2"), "/a.b/trace-worker-2");
  EXPECT_EQ(TracePath("/a/{name}/of {name}.json", "worker-2"), "/a/worker-2/of worker-2.json");
}

TEST(Trace, FileThatCannotBeWrittenIsNamed) {
  const absl::Status status = Trace("worker-0").Write("/nowhere/at/all.json");
  EXPECT_EQ(status.message(), "worker.trace: /nowhere/at/all.json cannot be written");
}

}  // namespace
}  // namespace slackline::worker::trace_test
