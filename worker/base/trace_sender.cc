#include "worker/base/trace_sender.h"

#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "common/log/logging.h"

namespace slackline::worker {
namespace {

uint64_t RandomSeed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

TraceSender::TraceSender(Trace& trace, std::string process, std::string job, Post post, absl::Duration every)
    : trace_(trace),
      post_(std::move(post)),
      every_(every),
      spans_(std::move(process), std::move(job), RandomSeed()),
      thread_([this] { Run(); }) {}

TraceSender::~TraceSender() {
  stop_.Notify();
  thread_.join();
}

void TraceSender::Run() {
  while (!stop_.WaitForNotificationWithTimeout(every_)) Turn(/*all=*/false, absl::InfiniteFuture());
  Turn(/*all=*/true, time_.Now() + kEndMax);
  while (spans_.next() > 0) spans_.Pop(/*sent=*/false);
  log::Info("worker.trace_otlp: sent ", spans_.sent(), " spans, dropped ", spans_.dropped());
}

void TraceSender::Turn(bool all, absl::Time deadline) {
  const absl::Time now = time_.Now();
  spans_.Add(trace_.TakeNews(), now, absl::Now(), all);
  while (spans_.next() > 0 && time_.Now() < deadline) {
    const absl::Status sent = post_(spans_.Message());
    if (!sent.ok() && !failing_) {
      log::Warning("worker.trace_otlp: spans are not sent, and training goes on: ", sent.message());
    } else if (sent.ok() && failing_) {
      log::Info("worker.trace_otlp: spans are sent again");
    }
    failing_ = !sent.ok();
    if (absl::IsUnavailable(sent)) return;
    spans_.Pop(sent.ok());
    // While events come faster than they are sent, they are taken, too.
    if (!all && time_.Now() - now > every_) return;
  }
}

}  // namespace slackline::worker
