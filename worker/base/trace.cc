#include "worker/base/trace.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"

namespace slackline::worker {
namespace {

constexpr char kPlaceOfName[] = "{name}";

double Microseconds(absl::Duration since) { return absl::ToDoubleMicroseconds(since); }

// What a viewer shows beside a row or the process.
nlohmann::json Label(const char* what, uint32_t row, const std::string& name) {
  return {{"ph", "M"}, {"pid", 0}, {"tid", row}, {"name", what}, {"args", {{"name", name}}}};
}

}  // namespace

std::string TraceText(const TraceName& name) {
  return name.number < 0 ? std::string(name.text) : absl::StrCat(name.text, " ", name.number);
}

uint32_t Trace::AddRow(std::string name) {
  absl::MutexLock lock(&mutex_);
  rows_.push_back(std::move(name));
  return static_cast<uint32_t>(rows_.size());
}

void Trace::Add(uint32_t row, TraceName name, absl::Time begin, absl::Time end) {
  Keep({.name = name, .row = row, .begin = begin, .length = end - begin});
}

void Trace::AddOverlapping(TraceName name, absl::Time begin, absl::Time end) {
  Keep({.name = name, .row = TraceEvent::kNoRow, .begin = begin, .length = end - begin});
}

void Trace::Keep(const TraceEvent& event) {
  absl::MutexLock lock(&mutex_);
  if (events_.size() < events_max_) {
    events_.push_back(event);
  } else {
    ++dropped_;
  }
  if (news_max_ == 0) return;
  if (news_.size() < news_max_) {
    news_.push_back(event);
  } else {
    ++news_dropped_;
  }
}

Trace::News Trace::TakeNews() {
  absl::MutexLock lock(&mutex_);
  return {.events = std::exchange(news_, {}), .dropped = std::exchange(news_dropped_, 0), .rows = rows_};
}

void Trace::WriteTo(std::ostream& out) {
  absl::MutexLock lock(&mutex_);
  // What holds others comes before them.
  std::stable_sort(events_.begin(), events_.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tie(a.begin, b.length) < std::tie(b.begin, a.length);
  });
  // For those who put several files side by side: when the first event began, by the wall clock.
  const absl::Duration ago = events_.empty() ? absl::ZeroDuration() : time_.Now() - events_.front().begin;
  out << "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"began_unix_ns\": \"" << absl::ToUnixNanos(absl::Now() - ago)
      << "\", \"events_not_kept\": " << dropped_ << "}, \"traceEvents\": [\n"
      << Label("process_name", 0, process_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    out << ",\n" << Label("thread_name", static_cast<uint32_t>(i + 1), rows_[i]);
  }
  for (size_t i = 0; i < events_.size(); ++i) WriteEvent(events_[i], i, events_.front().begin, out);
  out << "\n]}\n";
}

void Trace::WriteEvent(const TraceEvent& event, size_t id, absl::Time origin, std::ostream& out) {
  const absl::Duration begin = event.begin - origin;
  nlohmann::json line = {{"pid", 0}, {"tid", event.row}, {"name", TraceText(event.name)}, {"ts", Microseconds(begin)}};
  if (event.row != TraceEvent::kNoRow) {
    line.update({{"ph", "X"}, {"dur", Microseconds(event.length)}});
    out << ",\n" << line;
    return;
  }
  line.update({{"tid", 0}, {"cat", event.name.text}, {"id", id}, {"ph", "b"}});
  out << ",\n" << line;
  line.update({{"ph", "e"}, {"ts", Microseconds(begin + event.length)}});
  out << ",\n" << line;
}

absl::Status Trace::Write(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  WriteTo(file);
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
