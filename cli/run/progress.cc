#include "cli/run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/run/status_view.h"
#include "common/log/logging.h"
#include "common/metrics/measured.h"
#include "common/metrics/test_metric.h"

namespace slackline::cli {
namespace {

constexpr absl::Duration kPlainEvery = absl::Seconds(5);
// Of so many epochs each begins with a line; more would say too much.
constexpr uint32_t kEpochLinesMax = 50;
constexpr int kBarColumnsMax = 24;
constexpr int kBarColumnsMin = 8;
constexpr int kWidthUnknown = 80;
// A finished run of a hundred hours is "99:59:59"; longer guesses help nobody.
constexpr double kSecondsLeftMax = 100 * 3600;

double Fraction(const wire::GetStatusReply& status) {
  if (status.samples_total() == 0) return 0;
  return std::min(1.0, static_cast<double>(status.samples_done()) / static_cast<double>(status.samples_total()));
}

std::string Bar(double fraction, int columns) {
  const int full = static_cast<int>(fraction * columns);
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '='),
                      std::string(static_cast<size_t>(columns - full), ' '), "]");
}

std::string Starting(const wire::GetStatusReply& status) {
  return absl::StrCat("starting", status.reason().empty() ? "" : absl::StrCat(": ", status.reason()));
}

// The figures, the most important first. Loss, accuracy and named figures are those of training.
std::vector<std::string> Figures(const wire::GetStatusReply& status) {
  std::vector<std::string> figures;
  const uint32_t tokens = status.tokens_per_sample();
  figures.push_back(tokens > 0 ? absl::StrCat(RenderCount(tokens * status.samples_per_second()), " tokens/s")
                               : absl::StrCat(RenderCount(status.samples_per_second()), " samples/s"));
  figures.push_back(status.has_loss() ? absl::StrFormat("train loss %.3f", status.loss()) : "train loss -");
  const std::string& metric = status.metric().name();
  for (const wire::NamedValue& value : status.train_values()) {
    if (value.name() == metric) figures.push_back(FigureText(value.name(), value.value()));
  }
  if (status.has_train_accuracy() && status.test_metric() != kMapMetric) {
    figures.push_back(absl::StrFormat("accuracy %.1f %%", 100 * status.train_accuracy()));
  } else if (tokens == 0 && status.test_metric() != kMapMetric && (metric.empty() || metric == kAccuracyMetric)) {
    figures.push_back("accuracy -");
  }
  figures.push_back(absl::StrCat("slack ", status.slack()));
  if (status.seconds_left() > 0 && status.seconds_left() < kSecondsLeftMax) {
    figures.push_back(absl::StrCat(RenderTime(status.seconds_left()), " left"));
  }
  return figures;
}

std::string Epoch(const wire::GetStatusReply& status) {
  return absl::StrFormat("epoch %u/%u", status.epoch(), status.epochs());
}

std::string Percent(const wire::GetStatusReply& status) {
  return absl::StrFormat("%3d %%", static_cast<int>(100 * Fraction(status)));
}

// As much of `text` as fits; it holds ASCII but for names that people chose.
std::string Cut(const std::string& text, int width) { return text.substr(0, static_cast<size_t>(std::max(0, width))); }

}  // namespace

std::string RenderTime(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, minutes, whole % 60);
  return absl::StrFormat("%d:%02d", minutes, whole % 60);
}

std::string RenderCount(double count) {
  std::string digits = absl::StrFormat("%.0f", std::max(0.0, count));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string RenderProgress(const wire::GetStatusReply& status, int width) {
  if (status.state() == wire::JOB_STARTING) return Cut(Starting(status), width);
  std::string line = absl::StrCat(Epoch(status), " ", Percent(status));
  std::string figures;
  for (const std::string& figure : Figures(status)) {
    const size_t size = line.size() + figures.size() + 2 + figure.size();
    if (size > static_cast<size_t>(std::max(0, width))) break;
    absl::StrAppend(&figures, "  ", figure);
  }
  // The bar takes what is left.
  const int room = width - static_cast<int>(line.size() + figures.size()) - 3;
  if (room >= kBarColumnsMin) {
    line =
        absl::StrCat(Epoch(status), " ", Bar(Fraction(status), std::min(room, kBarColumnsMax)), " ", Percent(status));
  }
  return Cut(absl::StrCat(line, figures), width);
}

std::string RenderPlain(const wire::GetStatusReply& status) {
  if (status.state() == wire::JOB_STARTING) return Starting(status);
  return absl::StrCat(absl::StrFormat("%6.1f s  ", status.elapsed_seconds()), Epoch(status), " ", Percent(status), "  ",
                      absl::StrJoin(Figures(status), "  "));
}

void ProgressDisplay::Show(const wire::GetStatusReply& status, absl::Time now) {
  ShowEvents(status);
  if (quiet_) return;
  if (kind_ == Kind::kLive) {
    // A line that nobody takes would be an old one later.
    if (out_.stuck()) return;
    out_.Write(absl::StrCat("\r\x1b[K", RenderProgress(status, Width() - 1)));
    live_ = true;
    return;
  }
  const bool starting = status.state() == wire::JOB_STARTING;
  const bool new_epoch = status.epoch() != epoch_shown_ && status.epochs() <= kEpochLinesMax;
  const bool news = starting ? status.reason() != waiting_shown_ : new_epoch;
  if (!news && now < next_plain_) return;
  waiting_shown_ = status.reason();
  epoch_shown_ = status.epoch();
  next_plain_ = now + kPlainEvery;
  Say(RenderPlain(status));
}

void ProgressDisplay::ShowEvents(const wire::GetStatusReply& status) {
  // The reply holds the newest events; `event_count` says how many there have been.
  const uint64_t held = static_cast<uint64_t>(status.events_size());
  const uint64_t first = status.event_count() - std::min(status.event_count(), held);
  for (uint64_t at = std::max(first, events_shown_); at < status.event_count(); ++at) {
    if (!quiet_) Say(status.events(static_cast<int>(at - first)));
  }
  events_shown_ = std::max(events_shown_, status.event_count());
}

void ProgressDisplay::Say(absl::string_view line) {
  if (kind_ == Kind::kLog) return log::Info(line);
  Clear();
  // It may have names in it that others have chosen.
  std::string text = absl::StrCat(PrintableLines(line), "\n");
  if (const uint64_t left_out = out_.TakeLeftOut(); left_out > 0) {
    text = absl::StrCat("(Nobody read this for a while: ", left_out, " lines are left out here.)\n", text);
  }
  out_.Write(text);
}

void ProgressDisplay::Clear() {
  if (!live_) return;
  out_.Write("\r\x1b[K");
  live_ = false;
}

int ProgressDisplay::Width() const {
  winsize size{};
  if (::ioctl(out_.descriptor(), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWidthUnknown;
  return size.ws_col;
}

}  // namespace slackline::cli
