#include "scheduler/service/slow_lane.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"

namespace slackline::scheduler {

// A call of the lane, until gRPC is done with it.
class SlowLane::Call : public grpc::ServerUnaryReactor {
 public:
  explicit Call(SlowLane& lane) : lane_(lane) {}

  void OnDone() override {
    lane_.Leave();
    delete this;
  }

 private:
  SlowLane& lane_;
};

SlowLane::~SlowLane() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  thread_.join();
}

grpc::ServerUnaryReactor* SlowLane::Serve(std::function<grpc::Status()> work) {
  Call* const call = new Call(*this);  // deletes itself
  {
    absl::MutexLock lock(&mutex_);
    if (++calls_ <= calls_max_) {
      waiting_.push_back([call, work = std::move(work)] { call->Finish(work()); });
      return call;
    }
  }
  call->Finish(rpc::ToGrpc(absl::ResourceExhaustedError(
      absl::StrCat("more than ", calls_max_, " calls for the status or for images are in progress: ask again"))));
  return call;
}

void SlowLane::Leave() {
  absl::MutexLock lock(&mutex_);
  --calls_;
}

void SlowLane::Run() {
  while (true) {
    std::function<void()> next;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &SlowLane::HasNews));
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }
}

}  // namespace slackline::scheduler
