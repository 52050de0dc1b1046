#include "worker/group/arrival_gate.h"

namespace slackline::worker {

void ArrivalGate::Close() { Open(0); }

void ArrivalGate::Open(uint64_t to) {
  absl::MutexLock lock(&mutex_);
  open_to_ = to;
}

void ArrivalGate::Await(uint64_t end) {
  const auto open = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return open_to_ >= end; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&open));
}

absl::Status ArrivalGate::Pass(Arrival& arrival, const Pieces& pieces, absl::FunctionRef<absl::Status()> before_last) {
  absl::Status status;
  for (uint64_t end = pieces.each; end < pieces.elements && status.ok(); end += pieces.each) {
    status = arrival.AwaitUpTo(end);
    if (status.ok()) Open(end);
  }
  if (status.ok()) status = arrival.AwaitAll();
  if (status.ok()) status = before_last();
  Open(UINT64_MAX);
  return status;
}

}  // namespace slackline::worker
