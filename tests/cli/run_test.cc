// The end of a run whose processes die, with a fake scheduler.
#include "cli/run/run.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cli/base/complain.h"
#include "common/text/utf8.h"
#include "scheduler.grpc.pb.h"

// By how much the wall clock of this program was set forward.
static std::atomic<int64_t> wall_clock_gained_s = 0;

// In the place of the system's, for libraries too.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += wall_clock_gained_s;
  return result;
}

namespace slackline::cli::run_test {
namespace {

using ::testing::ElementsAre;

// Trains until it is told to stop.
class FakeScheduler : public wire::Scheduler::Service {
 public:
  // Does not hear the first `deaf` orders. Each of them sets the wall clock forward by `step_s`.
  void SetDeaf(int deaf, int64_t step_s = 0) {
    absl::MutexLock lock(&mutex_);
    deaf_ = deaf;
    step_s_ = step_s;
  }

  grpc::Status GetStatus(grpc::ServerContext* /*context*/, const wire::GetStatusRequest* /*request*/,
                         wire::GetStatusReply* reply) override {
    absl::MutexLock lock(&mutex_);
    reply->set_job(1);
    reply->set_state(done_ ? wire::JOB_DONE : stops_.empty() ? wire::JOB_TRAINING : wire::JOB_FAILED);
    said_end_ = done_ || !stops_.empty();
    return grpc::Status::OK;
  }

  grpc::Status StopJob(grpc::ServerContext* /*context*/, const wire::StopJobRequest* request,
                       wire::StopJobReply* /*reply*/) override {
    absl::MutexLock lock(&mutex_);
    if (deaf_-- > 0) {
      wall_clock_gained_s += step_s_;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not yet");
    }
    stops_.push_back(request->reason());
    return grpc::Status::OK;
  }

  void SetDone() {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }

  std::vector<std::string> stops() {
    absl::MutexLock lock(&mutex_);
    return stops_;
  }
  bool said_end() {
    absl::MutexLock lock(&mutex_);
    return said_end_;
  }

 private:
  absl::Mutex mutex_;
  int deaf_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t step_s_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> stops_ ABSL_GUARDED_BY(mutex_);
  bool said_end_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

// No processes but the scheduler, in trouble from the start.
class FakeProcesses : public RunProcesses {
 public:
  FakeProcesses(FakeScheduler& scheduler, const std::string& address)
      : scheduler_(scheduler), client_(address, nullptr) {}

  std::string trouble;
  bool scheduler_died = false;
  std::string crash;

  absl::Status Start() override { return absl::OkStatus(); }
  bool has_scheduler() const override { return true; }
  SchedulerClient& scheduler() override { return client_; }
  bool scheduler_runs() override { return !scheduler_died && !scheduler_.said_end(); }
  std::string SchedulerCrash() override { return crash; }
  void Heard(bool /*scheduler_answered*/) override {}
  News Watch(const wire::GetStatusReply& /*status*/) override {
    News news;
    news.trouble = trouble;
    return news;
  }
  std::vector<std::string> Stop(const Crew::StopDeadlines& /*deadlines*/) override { return {}; }

 private:
  FakeScheduler& scheduler_;
  SchedulerClient client_;
};

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/run_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    absl::StatusOr<RunFolder> folder = RunFolder::Create(root_ / "run");
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
    ASSERT_TRUE(folder_->WriteJob("{}\n").ok());
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&scheduler_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    processes_.emplace(scheduler_, absl::StrCat("127.0.0.1:", port));
  }
  void TearDown() override {
    wall_clock_gained_s = 0;
    std::filesystem::remove_all(root_);
  }

  int Execute(const job::Job& job = {}) {
    const RunOptions options;
    return cli::Run(options, job, *folder_, signals_, *processes_).Execute();
  }

  std::filesystem::path root_;
  SignalQueue signals_;
  std::optional<RunFolder> folder_;
  FakeScheduler scheduler_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<FakeProcesses> processes_;
};

TEST_F(RunTest, ABrokenRunTellsTheSchedulerUntilItHears) {
  processes_->trouble = "no worker is left; worker-1 died: killed by signal 9 (Killed)\nand more";
  scheduler_.SetDeaf(3);
  EXPECT_EQ(Execute(), kExitFailed);
  EXPECT_THAT(scheduler_.stops(),
              ElementsAre("no worker is left; worker-1 died: killed by signal 9 (Killed) and more"));
}

TEST_F(RunTest, ASchedulerThatHasDiedForGoodIsNotWaitedFor) {
  processes_->trouble = "scheduler died";
  processes_->scheduler_died = true;
  scheduler_.SetDeaf(1);
  EXPECT_EQ(Execute(), kExitFailed);
  EXPECT_THAT(scheduler_.stops(), ElementsAre());
}

TEST_F(RunTest, ASchedulerThatDiesWhenAllIsTrainedFailsTheRunThatLacksItsResults) {
  scheduler_.SetDone();
  EXPECT_EQ(Execute(), kExitDone);
  processes_->crash = "killed by signal 9 (Killed)";
  EXPECT_EQ(Execute(), kExitFailed) << "no summary and no checkpoint";
  job::Job job;
  job.mutable_checkpoint()->set_at_end(false);
  EXPECT_EQ(Execute(job), kExitFailed) << "no summary";
  std::ofstream(root_ / "run" / "summary.json") << "{}";
  EXPECT_EQ(Execute(job), kExitDone);
  EXPECT_EQ(Execute(), kExitFailed) << "no checkpoint";
}

TEST_F(RunTest, TheReasonReachesTheSchedulerWhateverItsBytes) {
  processes_->trouble = "worker-1 died: ung\xfcltig " + std::string(1 << 20, 'x');
  EXPECT_EQ(Execute(), kExitFailed);
  ASSERT_EQ(scheduler_.stops().size(), 1);
  const std::string heard = scheduler_.stops().front();
  EXPECT_THAT(heard, ::testing::StartsWith("worker-1 died: ung\xef\xbf\xbdltig xxx"));
  EXPECT_LE(heard.size(), kFreeTextBytesMax);
}

TEST_F(RunTest, AStepOfTheWallClockDoesNotEndTheTelling) {
  ASSERT_EQ(::raise(SIGTERM), 0);
  scheduler_.SetDeaf(2, /*step_s=*/24 * 3600);
  EXPECT_EQ(Execute(), kExitFailed);
  EXPECT_THAT(scheduler_.stops(), ElementsAre("stopped by a signal to `slackline train`"));
}

TEST_F(RunTest, SigpipeIsIgnored) {
  ::signal(SIGPIPE, SIG_DFL);
  processes_->trouble = "over";
  EXPECT_EQ(Execute(), kExitFailed);
  struct sigaction now {};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace slackline::cli::run_test
