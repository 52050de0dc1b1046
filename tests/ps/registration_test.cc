// A server's registration and heartbeats, with a fake scheduler that answers as each test wants.
#include "ps/service/registration.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/service/awaited.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::registration_test {
namespace {

using testing::HasSubstr;

class FakeScheduler : public wire::Scheduler::Service {
 public:
  FakeScheduler() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeScheduler() override { Shutdown(); }

  void Shutdown() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // Answers of the calls to come.
  void Set(const grpc::Status& registered, const grpc::Status& beat, bool leave) {
    absl::MutexLock lock(&mutex_);
    registered_ = registered;
    beat_ = beat;
    leave_ = leave;
  }
  // Waits for so many attempts to register.
  bool AwaitAttempts(int count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return attempts_ >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20));
  }
  // Waits for so many heartbeats; returns the last one.
  wire::HeartbeatRequest AwaitBeats(int count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return beats_ >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20)));
    return last_;
  }

 private:
  grpc::Status RegisterServer(grpc::ServerContext*, const wire::RegisterServerRequest* request,
                              wire::RegisterServerReply* reply) override {
    absl::MutexLock lock(&mutex_);
    ++attempts_;
    EXPECT_EQ(request->name(), "ps-0");
    EXPECT_EQ(request->job_fingerprint(), 42);
    reply->set_job(77);
    reply->set_server(3);
    reply->set_incarnation(8);
    return registered_;
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const wire::HeartbeatRequest* request,
                         wire::HeartbeatReply* reply) override {
    absl::MutexLock lock(&mutex_);
    ++beats_;
    last_ = *request;
    reply->set_leave(leave_);
    return beat_;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex mutex_;
  grpc::Status registered_ ABSL_GUARDED_BY(mutex_);
  grpc::Status beat_ ABSL_GUARDED_BY(mutex_);
  bool leave_ ABSL_GUARDED_BY(mutex_) = false;
  int attempts_ ABSL_GUARDED_BY(mutex_) = 0;
  int beats_ ABSL_GUARDED_BY(mutex_) = 0;
  wire::HeartbeatRequest last_ ABSL_GUARDED_BY(mutex_);
};

class RegistrationTest : public testing::Test {
 protected:
  void SetUp() override {
    SequencerOptions options;
    options.job = PlainJob();
    exchange_ = *Sequencer::Start(options, metrics_, time_);
  }

  void Begin(const std::string& place = "", absl::Duration silence_max = absl::Milliseconds(320),
             absl::Duration heartbeat = absl::Milliseconds(20)) {
    RegistrationOptions options;
    options.scheduler = place.empty() ? scheduler_.address() : place;
    options.scheduler_silence_max = silence_max;
    options.name = "ps-0";
    options.address = "127.0.0.1:1";
    options.job_fingerprint = 42;
    options.timeouts.heartbeat = heartbeat;
    options.on_end = [this](const absl::Status& status) { end_.Give(status); };
    registration_ = std::make_unique<Registration>(options, *exchange_);
  }

  absl::Status AwaitEnd() { return end_.Wait(absl::Seconds(20)).value_or(absl::UnknownError("no end came")); }

  Metrics metrics_;
  SteadyTime time_;
  FakeScheduler scheduler_;
  std::unique_ptr<Sequencer> exchange_;
  Awaited<absl::Status> end_;
  std::unique_ptr<Registration> registration_;
};

TEST_F(RegistrationTest, BeatsAsTheServerItWasToldToBe) {
  Begin();
  const wire::HeartbeatRequest beat = scheduler_.AwaitBeats(3);
  EXPECT_EQ(beat.role(), wire::MEMBER_ROLE_SERVER);
  EXPECT_EQ(beat.job(), 77);
  EXPECT_EQ(beat.member(), 3);
  EXPECT_EQ(beat.incarnation(), 8);
  EXPECT_GT(beat.server().resident_bytes(), 0);
  EXPECT_EQ(end_.Wait(absl::ZeroDuration()), std::nullopt);
}

TEST_F(RegistrationTest, NewsAreToldAtOnceAndNotWithTheNextHeartbeat) {
  Begin("", absl::Milliseconds(320), /*heartbeat=*/absl::Hours(1));
  for (int beats = 1; beats <= 3; ++beats) {
    exchange_->WakeUp();
    scheduler_.AwaitBeats(beats);
  }
  // Its end does not wait for a heartbeat either.
  registration_.reset();
}

TEST_F(RegistrationTest, LeavesInGoodOrderWhenTold) {
  scheduler_.Set(grpc::Status::OK, grpc::Status::OK, /*leave=*/true);
  Begin();
  EXPECT_TRUE(AwaitEnd().ok());
}

TEST_F(RegistrationTest, EndsWhenTheSchedulerRefusesIt) {
  scheduler_.Set({grpc::StatusCode::INVALID_ARGUMENT, "another job file"}, grpc::Status::OK, false);
  Begin();
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("another job file"));
}

TEST_F(RegistrationTest, ComesAgainWhenTheSchedulerIsBusy) {
  scheduler_.Set({grpc::StatusCode::RESOURCE_EXHAUSTED, "Server Threadpool Exhausted"}, grpc::Status::OK, false);
  Begin();
  EXPECT_TRUE(scheduler_.AwaitAttempts(3));
  EXPECT_EQ(end_.Wait(absl::ZeroDuration()), std::nullopt);
  scheduler_.Set(grpc::Status::OK, grpc::Status::OK, false);
  scheduler_.AwaitBeats(1);
}

TEST_F(RegistrationTest, EndsWhenTheSchedulerHasPutItOut) {
  Begin();
  scheduler_.AwaitBeats(1);
  scheduler_.Set(grpc::Status::OK, {grpc::StatusCode::FAILED_PRECONDITION, "declared dead"}, false);
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("has put this server out: declared dead"));
}

TEST_F(RegistrationTest, EndsWhenTheSchedulerIsGoneForTooLong) {
  Begin();
  scheduler_.AwaitBeats(1);
  scheduler_.Shutdown();
  const absl::Status end = AwaitEnd();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(end.message()), HasSubstr("has not answered for"));
}

TEST_F(RegistrationTest, FollowsASchedulerThatIsStartedAgainElsewhere) {
  const std::string file = testing::TempDir() + "/scheduler-address-" + std::to_string(::getpid());
  const auto write = [&](const std::string& address) {
    std::ofstream(file + ".new") << address << std::endl;
    std::filesystem::rename(file + ".new", file);
  };
  write(scheduler_.address());
  Begin(file, absl::Seconds(60));
  scheduler_.AwaitBeats(1);
  scheduler_.Shutdown();
  FakeScheduler next;
  write(next.address());
  EXPECT_EQ(next.AwaitBeats(2).incarnation(), 8) << "it is the server that it was";
  EXPECT_EQ(end_.Wait(absl::ZeroDuration()), std::nullopt);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace slackline::ps::registration_test
