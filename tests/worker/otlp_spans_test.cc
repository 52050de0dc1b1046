#include "worker/base/otlp_spans.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "nlohmann/json.hpp"

namespace slackline::worker::otlp_spans_test {
namespace {

constexpr uint32_t kTrainer = 1, kDevice = 2;
const absl::Time kWall = absl::FromUnixSeconds(1700000000);

absl::Time At(int ms) { return absl::UnixEpoch() + absl::Hours(1) + absl::Milliseconds(ms); }

TraceEvent Event(uint32_t row, const char* name, int64_t number, int begin_ms, int end_ms) {
  return {.name = {name, number}, .row = row, .begin = At(begin_ms), .length = absl::Milliseconds(end_ms - begin_ms)};
}

Trace::News News(std::vector<TraceEvent> events, uint64_t dropped = 0) {
  return {.events = std::move(events), .dropped = dropped, .rows = {"trainer", "device 0"}};
}

class OtlpSpansTest : public testing::Test {
 protected:
  // At 1,000 ms, which is kWall.
  void Add(const Trace::News& news, bool all = false) { spans_.Add(news, At(1000), kWall, all); }
  // The next message's spans by name.
  std::map<std::string, nlohmann::json> Take() {
    std::map<std::string, nlohmann::json> spans;
    if (spans_.next() == 0) return spans;
    resource_ = nlohmann::json::parse(spans_.Message())["resourceSpans"][0];
    for (const nlohmann::json& span : resource_["scopeSpans"][0]["spans"])
      spans[span["name"].get<std::string>()] = span;
    spans_.Pop(/*sent=*/true);
    return spans;
  }

  OtlpSpans spans_{"worker-1", "first", 7};
  nlohmann::json resource_;
};

TEST_F(OtlpSpansTest, StepHoldsWhatBeginsMeanwhile) {
  Add(News({Event(kDevice, "reduce bucket", 2, 30, 40), Event(kDevice, "backward", -1, 20, 50),
            Event(kTrainer, "wait for a layer", -1, 12, 18), Event(kTrainer, "step", 3, 10, 100),
            Event(TraceEvent::kNoRow, "push shard", 0, 40, 90)}));
  const auto spans = Take();
  ASSERT_EQ(spans.size(), 5u);
  const nlohmann::json& step = spans.at("step 3");
  EXPECT_EQ(step["traceId"].get<std::string>().size(), 32u);
  EXPECT_EQ(step["spanId"].get<std::string>().size(), 16u);
  EXPECT_FALSE(step.contains("parentSpanId"));
  EXPECT_EQ(step["kind"], 1);
  EXPECT_EQ(step["startTimeUnixNano"], "1699999999010000000");
  EXPECT_EQ(step["endTimeUnixNano"], "1699999999100000000");
  EXPECT_EQ(spans.at("push shard 0")["kind"], 3);
  EXPECT_EQ(spans.at("push shard 0")["attributes"][0]["value"]["stringValue"], "wire");
  EXPECT_EQ(spans.at("backward")["attributes"][0]["value"]["stringValue"], "device 0");
  EXPECT_EQ(spans.at("reduce bucket 2")["parentSpanId"], spans.at("backward")["spanId"]);
  for (const char* name : {"backward", "wait for a layer", "push shard 0"}) {
    EXPECT_EQ(spans.at(name)["parentSpanId"], step["spanId"]) << name;
  }
  for (const auto& [name, span] : spans) EXPECT_EQ(span["traceId"], step["traceId"]) << name;
  const nlohmann::json attributes = resource_["resource"]["attributes"];
  EXPECT_EQ(attributes[1],
            nlohmann::json::parse(R"({"key":"service.instance.id","value":{"stringValue":"worker-1"}})"));
  EXPECT_EQ(attributes[2], nlohmann::json::parse(R"({"key":"slackline.job","value":{"stringValue":"first"}})"));
}

TEST_F(OtlpSpansTest, EventsWaitForTheEndOfTheirStep) {
  Add(News({Event(kTrainer, "step", 1, 0, 100), Event(kDevice, "forward", -1, 110, 150)}));
  EXPECT_EQ(Take().size(), 1u);
  Add(News({Event(kTrainer, "step", 2, 100, 200), Event(TraceEvent::kNoRow, "pull shard", 0, 50, 190)}));
  const auto spans = Take();
  EXPECT_EQ(spans.at("forward")["parentSpanId"], spans.at("step 2")["spanId"]);
  EXPECT_NE(spans.at("pull shard 0")["traceId"], spans.at("step 2")["traceId"]) << "began in step 1";
  EXPECT_TRUE(spans.at("pull shard 0").contains("parentSpanId"));
}

TEST_F(OtlpSpansTest, EventsDoNotWaitForever) {
  Add(News({Event(kTrainer, "evaluate", -1, 0, 900)}));
  EXPECT_EQ(spans_.next(), 0u);
  spans_.Add(News({}), At(900) + OtlpSpans::kHoldMax + absl::Milliseconds(1), kWall, /*all=*/false);
  EXPECT_EQ(spans_.next(), 1u);
  Add(News({Event(kTrainer, "wait for data", -1, 950, 960)}), /*all=*/true);
  EXPECT_EQ(spans_.next(), 2u);
}

TEST_F(OtlpSpansTest, QueuesAreBoundedAndCountWhatTheyDrop) {
  std::vector<TraceEvent> steps;
  for (int i = 0; i < 1000; ++i) steps.push_back(Event(kTrainer, "step", i, i, i + 1));
  uint64_t given = 0;
  for (; given < 2 * OtlpSpans::kSpansMax; given += steps.size()) Add(News(steps));
  EXPECT_EQ(spans_.dropped(), given - OtlpSpans::kSpansMax);
  EXPECT_EQ(spans_.next(), OtlpSpans::kMessageMax);
  Add(News({}, /*dropped=*/5));
  EXPECT_EQ(spans_.dropped(), given - OtlpSpans::kSpansMax + 5);
  spans_.Pop(/*sent=*/false);
  spans_.Pop(/*sent=*/true);
  EXPECT_EQ(spans_.sent(), OtlpSpans::kMessageMax);
  EXPECT_EQ(spans_.dropped(), given - OtlpSpans::kSpansMax + 5 + OtlpSpans::kMessageMax);
  steps.assign(OtlpSpans::kHeldMax + 10, Event(kDevice, "forward", -1, 999, 1000));
  const uint64_t before = spans_.dropped();
  Add(News(steps));
  EXPECT_EQ(spans_.dropped(), before + 10);
}

TEST(TraceNews, AreBoundedAndTakenOnce) {
  Trace trace("worker-1", /*events_max=*/0, /*news_max=*/2);
  const uint32_t row = trace.AddRow("trainer");
  for (int i = 0; i < 3; ++i) trace.Add(row, {"step", i}, At(i), At(i + 1));
  const Trace::News news = trace.TakeNews();
  EXPECT_EQ(news.events.size(), 2u);
  EXPECT_EQ(news.dropped, 1u);
  EXPECT_THAT(news.rows, testing::ElementsAre("trainer"));
  EXPECT_TRUE(trace.TakeNews().events.empty());
  EXPECT_EQ(trace.TakeNews().dropped, 0u);
}

}  // namespace
}  // namespace slackline::worker::otlp_spans_test
