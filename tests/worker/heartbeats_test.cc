// The link's heartbeats, as a scheduler on loopback hears them.
#include "worker/scheduler_link/scheduler_link.h"

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "scheduler.grpc.pb.h"

namespace slackline::worker::heartbeats_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// Makes every worker a member at once, and keeps what heartbeats say.
class Ears final : public wire::Scheduler::Service {
 public:
  Ears() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status RegisterWorker(grpc::ServerContext*, const wire::RegisterWorkerRequest*,
                              wire::RegisterWorkerReply* reply) override {
    reply->set_job(7);
    reply->set_worker(1);
    reply->set_incarnation(1);
    return grpc::Status::OK;
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const wire::HeartbeatRequest* request,
                         wire::HeartbeatReply* reply) override {
    reply->set_state(wire::WORKER_LIVE);
    absl::MutexLock lock(&mutex_);
    idle_ = absl::Milliseconds(request->worker().idle_ms());
    return grpc::Status::OK;
  }

  absl::Duration idle() {
    absl::MutexLock lock(&mutex_);
    return idle_;
  }
  bool WaitUntilIdle(absl::Duration longer_than) {
    absl::MutexLock lock(&mutex_);
    const auto is_idle = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return idle_ > longer_than; };
    return mutex_.AwaitWithTimeout(absl::Condition(&is_idle), kPatience);
  }

 private:
  absl::Mutex mutex_;
  absl::Duration idle_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(SchedulerLink, HeartbeatsTellAFirstStepThatComputesFromOneThatHangs) {
  Ears scheduler;
  SchedulerLink::Options options;
  options.address = scheduler.address();
  options.name = "w-1";
  options.timeouts.heartbeat = absl::Milliseconds(100);
  options.timeouts.stall = absl::Milliseconds(800);
  const auto link = SchedulerLink::Create(options);
  const absl::StatusOr<WorkerMembership> life = link->Join();
  ASSERT_TRUE(life.ok()) << life.status();
  const SteadyTime time;
  const absl::Time begin = time.Now();
  // It computes, longer than it is idle.
  while (time.Now() - begin < absl::Milliseconds(600) || scheduler.idle() > absl::Milliseconds(400)) {
    ASSERT_LT(time.Now() - begin, kPatience) << "its heartbeats say that it has been idle for " << scheduler.idle();
  }
  // It waits for what never comes.
  EXPECT_TRUE(scheduler.WaitUntilIdle(absl::Milliseconds(800)));
  link->Leave("done", {});
}

// The scheduler says no version, as one of 0.1.0: it would train with the job file's optimizer.
TEST(SchedulerLink, ASchedulerThatIgnoresAScriptsOptimizerIsRefused) {
  Ears scheduler;
  SchedulerLink::Options options;
  options.address = scheduler.address();
  options.name = "w-1";
  options.timeouts.heartbeat = absl::Milliseconds(100);
  options.optimizer = std::make_shared<job::Optimizer>();
  const absl::Status refused = SchedulerLink::Create(options)->Join().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(refused.message().find("speaks protocol 1.0, which ignores that; allowed is 1.3 and newer"),
            std::string::npos)
      << refused;
}

}  // namespace
}  // namespace slackline::worker::heartbeats_test
