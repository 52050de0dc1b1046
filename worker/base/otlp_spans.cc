#include "worker/base/otlp_spans.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace slackline::worker {
namespace {

constexpr char kTrainerRow[] = "trainer";
constexpr char kOwnRow[] = "wire";  // of events that overlap
constexpr absl::string_view kStep = "step";
constexpr char kScope[] = "slackline.worker.trace";
constexpr int kInternal = 1, kClient = 3;

nlohmann::ordered_json Attribute(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

// Returns for each event the place of the one that holds it on its row. The events are in the order of their begins.
std::vector<std::optional<size_t>> Parents(const std::vector<TraceEvent>& events) {
  std::vector<std::optional<size_t>> parents(events.size());
  std::map<uint32_t, std::vector<size_t>> open;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].row == TraceEvent::kNoRow) continue;
    std::vector<size_t>& stack = open[events[i].row];
    while (!stack.empty() && events[stack.back()].end() < events[i].end()) stack.pop_back();
    if (!stack.empty()) parents[i] = stack.back();
    stack.push_back(i);
  }
  return parents;
}

}  // namespace

std::string OtlpSpans::NewId(size_t digits) {
  std::string id;
  while (id.size() < digits) absl::StrAppend(&id, absl::Hex(ids_.Next() | 1, absl::kZeroPad16));
  return id;
}

const OtlpSpans::Top* OtlpSpans::TopAt(absl::Time time) const {
  for (auto top = tops_.rbegin(); top != tops_.rend(); ++top) {
    if (top->begin <= time) return time < top->end ? &*top : nullptr;
  }
  return nullptr;
}

std::vector<TraceEvent> OtlpSpans::TakeReady(uint32_t trainer, absl::Time now, bool all) {
  absl::Time until = all ? absl::InfiniteFuture() : absl::InfinitePast();
  for (const TraceEvent& event : held_) {
    // Nothing holds a step.
    if (event.row == trainer && event.name.text == kStep) until = std::max(until, event.end());
    if (now - event.end() > kHoldMax) until = absl::InfiniteFuture();
  }
  const auto waits = std::stable_partition(held_.begin(), held_.end(),
                                           [until](const TraceEvent& event) { return event.end() <= until; });
  std::vector<TraceEvent> ready(held_.begin(), waits);
  held_.erase(held_.begin(), waits);
  std::stable_sort(ready.begin(), ready.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tie(a.begin, b.length) < std::tie(b.begin, a.length);
  });
  return ready;
}

void OtlpSpans::Add(const Trace::News& news, absl::Time now, absl::Time wall, bool all) {
  const size_t room = std::min(news.events.size(), kHeldMax - std::min(kHeldMax, held_.size()));
  held_.insert(held_.end(), news.events.begin(), news.events.begin() + static_cast<std::ptrdiff_t>(room));
  dropped_ += news.dropped + news.events.size() - room;
  const auto row = std::find(news.rows.begin(), news.rows.end(), kTrainerRow);
  const auto trainer = static_cast<uint32_t>(row - news.rows.begin()) + 1;

  const std::vector<TraceEvent> events = TakeReady(trainer, now, all);
  const std::vector<std::optional<size_t>> parents = Parents(events);
  struct Ids {
    std::string trace, span, parent;
  };
  std::vector<Ids> ids(events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    ids[i].span = NewId(16);
    if (events[i].row != trainer || parents[i]) continue;
    ids[i].trace = NewId(32);
    tops_.push_back({.begin = events[i].begin, .end = events[i].end(), .trace = ids[i].trace, .span = ids[i].span});
    if (tops_.size() > kTopsMax) tops_.pop_front();
  }
  // Parents come before what they hold.
  for (size_t i = 0; i < events.size(); ++i) {
    if (parents[i]) {
      ids[i].trace = ids[*parents[i]].trace;
      ids[i].parent = ids[*parents[i]].span;
    } else if (ids[i].trace.empty()) {
      const Top* top = TopAt(events[i].begin);
      ids[i].trace = top != nullptr ? top->trace : NewId(32);
      ids[i].parent = top != nullptr ? top->span : "";
    }
  }
  for (size_t i = 0; i < events.size(); ++i) {
    if (spans_.size() >= kSpansMax) {
      dropped_ += events.size() - i;
      break;
    }
    const TraceEvent& event = events[i];
    const bool overlaps = event.row == TraceEvent::kNoRow;
    const int64_t begin_ns = absl::ToUnixNanos(wall - (now - event.begin));
    nlohmann::ordered_json span = {{"traceId", ids[i].trace}, {"spanId", ids[i].span}};
    if (!ids[i].parent.empty()) span["parentSpanId"] = ids[i].parent;
    span["name"] = TraceText(event.name);
    span["kind"] = overlaps ? kClient : kInternal;
    span["startTimeUnixNano"] = absl::StrCat(begin_ns);
    span["endTimeUnixNano"] = absl::StrCat(begin_ns + std::max<int64_t>(0, absl::ToInt64Nanoseconds(event.length)));
    const bool named = !overlaps && event.row <= news.rows.size();
    // A list of one in braces is that one itself for some compilers.
    span["attributes"] =
        nlohmann::ordered_json::array({Attribute("thread.name", named ? news.rows[event.row - 1] : kOwnRow)});
    spans_.push_back(span.dump());
  }
}

size_t OtlpSpans::next() const { return std::min(spans_.size(), kMessageMax); }

std::string OtlpSpans::Message() const {
  nlohmann::ordered_json attributes = {Attribute("service.name", "slackline-worker"),
                                       Attribute("service.instance.id", process_), Attribute("slackline.job", job_)};
  attributes.push_back({{"key", "slackline.events_not_kept"}, {"value", {{"intValue", absl::StrCat(dropped_)}}}});
  std::string json = absl::StrCat(R"({"resourceSpans":[{"resource":{"attributes":)", attributes.dump(),
                                  R"(},"scopeSpans":[{"scope":{"name":")", kScope, R"("},"spans":[)");
  for (size_t i = 0; i < next(); ++i) absl::StrAppend(&json, i == 0 ? "" : ",", spans_[i]);
  return json + "]}]}]}";
}

void OtlpSpans::Pop(bool sent) {
  const size_t count = next();
  spans_.erase(spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(count));
  (sent ? sent_ : dropped_) += count;
}

}  // namespace slackline::worker
