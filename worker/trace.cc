#include "worker/trace.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace slackline::worker {
namespace {

constexpr char kPlaceOfName[] = "{name}";

std::string Text(const TraceName& name) {
  return name.number < 0 ? std::string(name.text) : absl::StrCat(name.text, " ", name.number);
}

double Microseconds(absl::Duration since) { return absl::ToDoubleMicroseconds(since); }

// What a viewer shows beside a row or the process.
nlohmann::json Label(const char* what, uint32_t row, const std::string& name) {
  return {{"ph", "M"}, {"pid", 0}, {"tid", row}, {"name", what}, {"args", {{"name", name}}}};
}

}  // namespace

uint32_t Trace::AddRow(std::string name) {
  absl::MutexLock lock(&mutex_);
  rows_.push_back(std::move(name));
  return static_cast<uint32_t>(rows_.size());
}

void Trace::Add(uint32_t row, TraceName name, absl::Time begin, absl::Time end) {
  Keep({.name = name, .row = row, .begin = begin, .length = end - begin});
}

void Trace::AddOverlapping(TraceName name, absl::Time begin, absl::Time end) {
  Keep({.name = name, .row = kNoRow, .begin = begin, .length = end - begin});
}

void Trace::Keep(const Event& event) {
  absl::MutexLock lock(&mutex_);
  if (events_.size() < events_max_) {
    events_.push_back(event);
  } else {
    ++dropped_;
  }
}

std::string Trace::Json() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Event> events = events_;
  // What holds others comes before them.
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.begin, b.length) < std::tie(b.begin, a.length);
  });
  const absl::Time origin = events.empty() ? absl::Time() : events.front().begin;
  std::string lines = Label("process_name", 0, process_).dump();
  for (size_t i = 0; i < rows_.size(); ++i) {
    absl::StrAppend(&lines, ",\n", Label("thread_name", static_cast<uint32_t>(i + 1), rows_[i]).dump());
  }
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    nlohmann::json line = {
        {"pid", 0}, {"tid", event.row}, {"name", Text(event.name)}, {"ts", Microseconds(event.begin - origin)}};
    if (event.row != kNoRow) {
      line["ph"] = "X";
      line["dur"] = Microseconds(event.length);
      absl::StrAppend(&lines, ",\n", line.dump());
      continue;
    }
    line.update({{"tid", 0}, {"cat", event.name.text}, {"id", i}, {"ph", "b"}});
    absl::StrAppend(&lines, ",\n", line.dump());
    line.update({{"ph", "e"}, {"ts", Microseconds(event.begin + event.length - origin)}});
    absl::StrAppend(&lines, ",\n", line.dump());
  }
  return absl::StrCat("{\"displayTimeUnit\": \"ms\", \"otherData\": {\"events_not_kept\": ", dropped_,
                      "}, \"traceEvents\": [\n", lines, "\n]}\n");
}

absl::Status Trace::Write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  file << Json();
  file.close();
  if (file) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("worker.trace: ", path, " cannot be written"));
}

std::string TracePath(const std::string& path, const std::string& name) {
  if (path.find(kPlaceOfName) != std::string::npos) return absl::StrReplaceAll(path, {{kPlaceOfName, name}});
  const std::filesystem::path whole(path);
  const std::string file = absl::StrCat(whole.stem().string(), "-", name, whole.extension().string());
  return (whole.parent_path() / file).string();
}

}  // namespace slackline::worker
