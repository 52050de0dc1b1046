// Members of a job on a machine whose wall clock is set back by an hour in the middle of every wait.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/time/clock.h"
#include "common/process/steady_flag.h"
#include "common/time/clock.h"
#include "gtest/gtest.h"
#include "ps/service/registration.h"
#include "scheduler.grpc.pb.h"
#include "worker/scheduler_link/scheduler_link.h"

namespace {

constexpr time_t kAheadS = 3600;

}  // namespace

// Libraries that count on the wall clock see it an hour ahead. The kernel ends their waits by its own, an hour later.
extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const int failed = static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
  if (failed == 0 && clock == CLOCK_REALTIME) out->tv_sec += kAheadS;
  return failed;
}

namespace slackline::wall_clock_test {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(20);

class FakeScheduler : public wire::Scheduler::Service {
 public:
  FakeScheduler() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeScheduler() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // After this many heartbeats from now on.
  bool AwaitBeats(int count) {
    left_ = count;
    enough_.Take(absl::ZeroDuration());
    return enough_.Await(kSoon);
  }

 private:
  grpc::Status RegisterServer(grpc::ServerContext*, const wire::RegisterServerRequest*,
                              wire::RegisterServerReply* reply) override {
    // A back-off, too, ends by the steady clock.
    if (attempts_++ == 0) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls"};
    reply->set_server(1);
    return grpc::Status::OK;
  }
  grpc::Status RegisterWorker(grpc::ServerContext*, const wire::RegisterWorkerRequest*,
                              wire::RegisterWorkerReply* reply) override {
    if (attempts_++ == 0) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls"};
    reply->set_worker(1);
    return grpc::Status::OK;
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const wire::HeartbeatRequest*, wire::HeartbeatReply* reply) override {
    reply->set_state(wire::WORKER_LIVE);
    if (--left_ <= 0) enough_.Raise();
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::atomic<int> attempts_ = 0;
  std::atomic<int> left_ = 1;
  SteadyFlag enough_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(WallClock, IsAhead) {
  timespec kernels{};
  ASSERT_EQ(::syscall(SYS_clock_gettime, CLOCK_REALTIME, &kernels), 0);
  EXPECT_GT(absl::Now() - absl::TimeFromTimespec(kernels), absl::Minutes(59)) << "else these tests prove nothing";
}

TEST(WallClock, SteadyWaitsEndInTime) {
  const SteadyTime time;
  const absl::Time begin = time.Now();
  SteadyPause(absl::Milliseconds(20));
  SteadyFlag flag;
  EXPECT_FALSE(flag.Await(absl::Milliseconds(20)));
  EXPECT_GE(time.Now() - begin, absl::Milliseconds(40));
  EXPECT_LT(time.Now() - begin, kSoon);
  flag.Raise();
  EXPECT_TRUE(flag.Await(absl::InfiniteDuration()));
  EXPECT_TRUE(flag.Take(absl::InfiniteDuration()));
  EXPECT_FALSE(flag.Take(absl::ZeroDuration()));
}

TEST(WallClock, AServerBeatsOn) {
  FakeScheduler scheduler;
  Metrics metrics;
  SteadyTime time;
  ps::SequencerOptions exchange_options;
  const auto exchange = *ps::Sequencer::Start(exchange_options, metrics, time);
  ps::RegistrationOptions options;
  options.scheduler = scheduler.address();
  options.timeouts.heartbeat = absl::Milliseconds(20);
  options.on_end = [](const absl::Status& status) { ADD_FAILURE() << status; };
  const ps::Registration registration(options, *exchange);
  EXPECT_TRUE(scheduler.AwaitBeats(10));
}

TEST(WallClock, AWorkerJoinsAndBeatsOn) {
  FakeScheduler scheduler;
  worker::SchedulerLink::Options options;
  options.address = scheduler.address();
  options.timeouts.heartbeat = absl::Milliseconds(20);
  const auto link = worker::SchedulerLink::Create(options);
  const auto life = link->Join();
  ASSERT_TRUE(life.ok()) << life.status();
  EXPECT_TRUE(scheduler.AwaitBeats(10));
}

}  // namespace
}  // namespace slackline::wall_clock_test
