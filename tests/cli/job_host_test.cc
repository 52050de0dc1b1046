// The host of the service, with a shell script in the place of `slackline`.
#include "cli/service/job_host.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/run/run_lock.h"
#include "cli/service/job_process.h"
#include "common/rpc/message_text.h"

namespace slackline::cli::job_host_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Does what the name in the job file says: `slackline train JOB --run-folder RUN`, `slackline resume RUN`, or
// `slackline slurm submit --wait --run-folder RUN JOB` and `slackline slurm wait RUN`.
constexpr char kProgram[] = R"(#!/bin/sh
echo "$@"
case "$1 $2" in
  train*) run=$4 job=$2 ;;
  "slurm submit") run=$5 job=$6; mkdir -p "$run/submit"; echo 12 > "$run/submit/job-id"
                  echo "SLURM job 12 is PENDING" > "$run/submit/queue" ;;
  "slurm wait") run=$3 job=$3/job.yaml ;;
  *) run=$2 job=$2/job.yaml ;;
esac
end() { echo "$(date '+%Y-%m-%d %H:%M:%S').000 the job is $1" >> "$run/events.log"; }
read -r _ kind < "$job"
[ "$kind" != refused ] || { echo "found a mistake"; exit 2; }
case $kind in
  deaf) trap '' INT ;;
  waits) trap 'end "stopped: by a signal"; exit 1' INT ;;
esac
mkdir -p "$run" && { [ "$job" = "$run/job.yaml" ] || cp "$job" "$run/job.yaml"; }
case $kind in
  done) end "done"; exit 0 ;;
  fails) end "failed: no data"; exit 1 ;;
  dies) kill -9 $$ ;;
  leaves) sleep 0.3 & kill -9 $$ ;;
esac
while :; do sleep 0.02; done
)";

class Host : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "slackline-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    std::ofstream(root_ / "slackline") << kProgram;
    fs::permissions(root_ / "slackline", fs::perms::owner_all);
    Open();
  }
  void TearDown() override {
    for (const fs::directory_entry& job : fs::directory_iterator(root_ / "service" / "jobs")) {
      if (auto process = JobProcess::Find(job.path() / "process")) process->Signal(SIGKILL);
    }
    host_.reset();
    fs::remove_all(root_);
  }

  void Open(QueueLimits limits = {}) {
    host_.reset();
    auto host = JobHost::Open({.folder = root_ / "service",
                               .limits = std::move(limits),
                               .ended_min = absl::ZeroDuration(),
                               .program = root_ / "slackline"});
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
  }
  uint64_t Submit(const std::string& kind, wire::JobPlace place = wire::JOB_ON_LOCAL) {
    wire::SubmitRequest request;
    request.mutable_needs()->set_place(place);
    if (place == wire::JOB_ON_SLURM) request.mutable_launch()->add_sbatch("--nodes=2");
    request.set_name(kind);
    request.mutable_launch()->set_job_yaml("name: " + kind + "\n");
    request.mutable_launch()->set_folder(root_.string());
    const auto reply = host_->Submit(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->id() : 0;
  }
  wire::ServiceJob Job(uint64_t id) const {
    wire::ListJobsRequest request;
    request.set_id(id);
    const auto reply = host_->List(request);
    return reply.ok() ? reply->jobs(0) : wire::ServiceJob();
  }
  std::string State(uint64_t id) const { return StateName(Job(id)); }
  absl::Status Order(uint64_t id, wire::JobOrder order) {
    wire::OrderJobRequest request;
    request.set_id(id);
    request.set_order(order);
    return host_->Order(request).status();
  }
  // Turns until the job is in the state.
  ::testing::AssertionResult Becomes(uint64_t id, const std::string& state) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (State(id) != state) {
      if (absl::Now() > deadline) return ::testing::AssertionFailure() << "job " << id << " is " << State(id);
      host_->Turn();
      absl::Notification().WaitForNotificationWithTimeout(absl::Milliseconds(5));
    }
    return ::testing::AssertionSuccess();
  }
  // Turns until the program of a running job listens to signals.
  ::testing::AssertionResult Begins(uint64_t id) {
    const auto begun = Becomes(id, "running");
    const absl::Time deadline = absl::Now() + kPatience;
    while (begun && !fs::exists(root_ / "service" / "jobs" / std::to_string(id) / "run" / "job.yaml")) {
      if (absl::Now() > deadline) return ::testing::AssertionFailure() << "no run folder";
      absl::Notification().WaitForNotificationWithTimeout(absl::Milliseconds(5));
    }
    return begun;
  }
  std::string Log(uint64_t id) const {
    wire::ReadJobLogRequest request;
    request.set_id(id);
    const auto reply = host_->ReadLog(request);
    return reply.ok() ? reply->text() : std::string(reply.status().message());
  }

  fs::path root_;
  std::unique_ptr<JobHost> host_;
};

TEST_F(Host, RunsOneJobAfterTheOtherAndTellsHowTheyEnded) {
  const uint64_t done = Submit("done"), fails = Submit("fails"), refused = Submit("refused");
  EXPECT_THAT(Job(fails).reason(), "begins soon");
  EXPECT_TRUE(Becomes(refused, "failed"));
  EXPECT_EQ(State(done), "done");
  EXPECT_EQ(Job(fails).reason(), "no data");
  EXPECT_THAT(Job(refused).reason(), HasSubstr("refused: "));
  EXPECT_THAT(Job(refused).reason(), HasSubstr("found a mistake"));
  EXPECT_THAT(Log(done), ContainsRegex("^train .*/jobs/1/job.yaml --run-folder .*/jobs/1/run\n$"));
}

TEST_F(Host, AJobThatWaitsSaysWhy) {
  const uint64_t first = Submit("waits"), second = Submit("done");
  ASSERT_TRUE(Begins(first));
  EXPECT_EQ(Job(second).reason(), "1 of 1 jobs run");
  EXPECT_EQ(Log(second), "job 2 has not begun");
  EXPECT_TRUE(Order(first, wire::JOB_ORDER_STOP).ok());
  EXPECT_TRUE(Becomes(second, "done"));
  EXPECT_EQ(State(first), "stopped");
}

TEST_F(Host, ACancelledJobEndsEvenIfItDoesNotListen) {
  const uint64_t deaf = Submit("deaf");
  ASSERT_TRUE(Begins(deaf));
  EXPECT_TRUE(Order(deaf, wire::JOB_ORDER_CANCEL).ok());
  EXPECT_TRUE(Becomes(deaf, "cancelled"));
}

TEST_F(Host, JobsGoOnWithoutTheHostAndTheNextOneFindsThem) {
  const uint64_t runs = Submit("waits"), waits = Submit("done");
  ASSERT_TRUE(Begins(runs));
  Open();
  EXPECT_EQ(State(runs), "running");
  EXPECT_TRUE(Order(runs, wire::JOB_ORDER_STOP).ok());
  EXPECT_TRUE(Becomes(waits, "done"));
  EXPECT_EQ(State(runs), "stopped");
}

TEST_F(Host, AJobThatEndedWithoutAHostIsDoneAndNotRunAgain) {
  const uint64_t id = Submit("waits");
  ASSERT_TRUE(Begins(id));
  const fs::path folder = root_ / "service" / "jobs" / "1";
  auto process = JobProcess::Find(folder / "process");
  ASSERT_TRUE(process.has_value());
  host_.reset();
  process->Signal(SIGINT);
  const absl::Time deadline = absl::Now() + kPatience;
  while (!process->Gone() && absl::Now() < deadline) {
    absl::Notification().WaitForNotificationWithTimeout(absl::Milliseconds(5));
  }
  Open();
  EXPECT_EQ(State(id), "stopped");
  EXPECT_EQ(Job(id).begins(), 1u);
}

TEST_F(Host, AJobThatDiesBeginsAgainAndFailsInTheEnd) {
  const uint64_t id = Submit("dies");
  EXPECT_TRUE(Becomes(id, "failed"));
  EXPECT_EQ(Job(id).begins(), JobQueue::kLossesMax + 1);
  EXPECT_THAT(Job(id).reason(), HasSubstr("killed by signal 9"));
  EXPECT_TRUE(fs::exists(root_ / "service" / "jobs" / "1" / "run-1")) << "what it has left is kept";
}

TEST_F(Host, AJobWhoseChildrenOutliveItForAMomentBeginsAgainAfterThem) {
  const uint64_t id = Submit("leaves");
  EXPECT_TRUE(Becomes(id, "failed"));
  EXPECT_EQ(Job(id).begins(), JobQueue::kLossesMax + 1) << Job(id).reason();
}

TEST_F(Host, AnEndedJobIsNotResumedWithSettingsThatItCannotHaveNorWhileItsRunGoesOn) {
  const uint64_t id = Submit("done");
  ASSERT_TRUE(Becomes(id, "done"));
  wire::OrderJobRequest request;
  request.set_id(id);
  request.set_order(wire::JOB_ORDER_RESUME);
  request.add_overrides("foo.bar=1");
  EXPECT_THAT(host_->Order(request).status().message(), HasSubstr("foo"));
  EXPECT_EQ(State(id), "done");
  const auto lock = RunLock::Take(root_ / "service" / "jobs" / "1" / "run");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_THAT(Order(id, wire::JOB_ORDER_REMOVE).message(), HasSubstr("continues its run"));
  EXPECT_THAT(Order(id, wire::JOB_ORDER_RESUME).message(), HasSubstr("continues its run"));
  EXPECT_EQ(State(id), "done");
}

TEST_F(Host, AFolderThatWasMovedKeepsItsJobs) {
  const uint64_t id = Submit("done");
  ASSERT_TRUE(Becomes(id, "done"));
  host_.reset();
  fs::rename(root_ / "service", root_ / "moved");
  auto host = JobHost::Open({.folder = root_ / "moved", .program = root_ / "slackline"});
  ASSERT_TRUE(host.ok()) << host.status();
  host_ = *std::move(host);
  EXPECT_EQ(Job(id).run_folder(), (root_ / "moved" / "jobs" / "1" / "run").string());
  EXPECT_TRUE(Order(id, wire::JOB_ORDER_REMOVE).ok());
  EXPECT_FALSE(fs::exists(root_ / "moved" / "jobs" / "1"));
  host_.reset();
  fs::rename(root_ / "moved", root_ / "service");
}

TEST_F(Host, AJobHasTheEnvironmentOfItsSubmission) {
  wire::SubmitRequest request;
  request.set_name("env");
  request.mutable_launch()->set_job_yaml("name: done\n");
  request.mutable_launch()->set_folder(root_.string());
  request.mutable_launch()->add_environment("PATH=/usr/bin:/bin");
  request.mutable_launch()->add_environment("ANSWER=42");
  std::ofstream(root_ / "slackline") << "#!/bin/sh\necho answer $ANSWER\nexit 2\n";
  ASSERT_TRUE(host_->Submit(request).ok());
  EXPECT_TRUE(Becomes(1, "failed"));
  EXPECT_THAT(Log(1), HasSubstr("answer 42"));
  EXPECT_FALSE(Job(1).has_launch()) << "it may hold secrets";
}

TEST_F(Host, AJobSeesTheGpusThatItHas) {
  Open({.jobs = 2, .gpus = {"5", "7"}});
  std::ofstream(root_ / "slackline") << "#!/bin/sh\necho sees [$CUDA_VISIBLE_DEVICES] by $CUDA_DEVICE_ORDER\nexit 2\n";
  wire::SubmitRequest request;
  request.set_name("gpus");
  request.mutable_launch()->set_job_yaml("name: done\n");
  request.mutable_launch()->set_folder(root_.string());
  request.mutable_launch()->add_environment("CUDA_VISIBLE_DEVICES=0");
  for (const uint32_t gpus : {0, 2}) {
    request.mutable_needs()->set_gpus(gpus);
    ASSERT_TRUE(host_->Submit(request).ok());
  }
  EXPECT_TRUE(Becomes(1, "failed"));
  EXPECT_TRUE(Becomes(2, "failed"));
  EXPECT_THAT(Log(1), HasSubstr("sees [] by PCI_BUS_ID\n"));
  EXPECT_THAT(Log(2), HasSubstr("sees [5,7] by PCI_BUS_ID\n"));
}

TEST_F(Host, LongJobFilesAndTextsThatAreNotUtf8ReachTheJobAsTheyAre) {
  wire::SubmitRequest request;
  request.set_name("long");
  request.mutable_launch()->set_job_yaml("name: done\n" + std::string(100000, '#') + "\n");
  request.mutable_launch()->set_folder(root_.string());
  request.mutable_launch()->add_environment("PATH=/usr/bin:/bin");
  request.mutable_launch()->add_environment("LATIN=\xe9");
  ASSERT_TRUE(rpc::HasValidText(request)) << "a message between processes is not mended";
  ASSERT_TRUE(host_->Submit(request).ok());
  Open();
  EXPECT_TRUE(Becomes(1, "done"));
  EXPECT_EQ(fs::file_size(root_ / "service" / "jobs" / "1" / "job.yaml"), 100012u);
}

TEST_F(Host, AReasonWithAnyBytesCanBeReadBack) {
  const uint64_t id = Submit("waits");
  wire::OrderJobRequest request;
  request.set_id(id);
  request.set_order(wire::JOB_ORDER_STOP);
  // A letter of three bytes lies across the limit.
  std::string reason = "x";
  while (reason.size() < 600) reason += "\u20ac";
  request.set_reason(reason);
  ASSERT_TRUE(host_->Order(request).ok());
  Open();
  EXPECT_EQ(State(id), "stopped");
}

TEST_F(Host, AStopThatWasNotToldIsToldByTheNextHost) {
  const uint64_t id = Submit("waits");
  ASSERT_TRUE(Begins(id));
  EXPECT_TRUE(Order(id, wire::JOB_ORDER_STOP).ok());
  Open();
  EXPECT_TRUE(Becomes(id, "stopped"));
}

TEST_F(Host, ARunThatCannotBeReadIsNotBegunAnew) {
  const uint64_t id = Submit("waits");
  ASSERT_TRUE(Begins(id));
  EXPECT_TRUE(Order(id, wire::JOB_ORDER_STOP).ok());
  EXPECT_TRUE(Becomes(id, "stopped"));
  EXPECT_TRUE(Order(id, wire::JOB_ORDER_RESUME).ok());
  std::ofstream(root_ / "service" / "jobs" / "1" / "run" / "job.yaml") << "name: [";
  EXPECT_TRUE(Becomes(id, "failed"));
  EXPECT_FALSE(fs::exists(root_ / "service" / "jobs" / "1" / "run-1"));
}

TEST_F(Host, ARemovalThatAHostBeganIsFinishedByTheNextOne) {
  const uint64_t id = Submit("done");
  ASSERT_TRUE(Becomes(id, "done"));
  host_.reset();
  fs::rename(root_ / "service" / "jobs" / "1", root_ / "service" / "jobs" / "removed-1");
  Open();
  EXPECT_EQ(State(id), "unknown");
  EXPECT_FALSE(fs::exists(root_ / "service" / "jobs" / "removed-1"));
}

TEST_F(Host, EndedJobsBeyondThoseThatAreKeptAreRemovedWithTheirFolders) {
  Open({.jobs = 1, .ended = 1});
  const uint64_t first = Submit("done"), second = Submit("done");
  EXPECT_TRUE(Becomes(second, "done"));
  host_->RemoveSurplus();
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(State(first), "unknown") << "it is not found";
    EXPECT_EQ(State(second), "done");
    Open({.jobs = 1});
  }
  EXPECT_FALSE(fs::exists(root_ / "service" / "jobs" / "1"));
  EXPECT_TRUE(fs::exists(root_ / "service" / "jobs" / "2"));
}

TEST_F(Host, ARunningJobKeepsItsGpusWhenTheHostIsReplaced) {
  const QueueLimits limits = {.jobs = 2, .gpus = {"0", "1"}};
  Open(limits);
  wire::SubmitRequest request;
  request.set_name("gpus");
  request.mutable_launch()->set_job_yaml("name: waits\n");
  request.mutable_launch()->set_folder(root_.string());
  request.mutable_launch()->add_environment("PATH=/usr/bin:/bin");
  request.mutable_needs()->set_gpus(1);
  ASSERT_TRUE(host_->Submit(request).ok());
  ASSERT_TRUE(Begins(1));
  Open(limits);
  ASSERT_TRUE(host_->Submit(request).ok());
  ASSERT_TRUE(Begins(2));
  EXPECT_EQ(Job(1).gpus(0), "0");
  EXPECT_EQ(Job(2).gpus(0), "1");
  EXPECT_EQ(host_->Used().gpus, 2);
}

TEST_F(Host, ARemovedJobIsGoneAndItsNumberIsNotGivenAgain) {
  const uint64_t id = Submit("done");
  EXPECT_EQ(Order(id, wire::JOB_ORDER_REMOVE).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Becomes(id, "done"));
  EXPECT_TRUE(Order(id, wire::JOB_ORDER_REMOVE).ok());
  EXPECT_FALSE(fs::exists(root_ / "service" / "jobs" / "1"));
  Open();
  EXPECT_EQ(State(id), "unknown");
  EXPECT_EQ(Submit("done"), id + 1);
}

TEST_F(Host, AJobOnSlurmIsFollowedThereAndNotSubmittedTwice) {
  const uint64_t id = Submit("waits", wire::JOB_ON_SLURM);
  ASSERT_TRUE(Begins(id));
  EXPECT_EQ(Job(id).reason(), "SLURM job 12 is PENDING");
  JobProcess::Find(root_ / "service" / "jobs" / "1" / "process")->Signal(SIGKILL);
  const absl::Time deadline = absl::Now() + kPatience;
  while (Job(id).begins() < 2 && absl::Now() < deadline) host_->Turn();
  EXPECT_TRUE(Order(id, wire::JOB_ORDER_STOP).ok());
  EXPECT_TRUE(Becomes(id, "stopped"));
  EXPECT_THAT(Log(id),
              ContainsRegex("slurm submit --wait --run-folder [^ ]*/run [^ ]*/job.yaml -- --job-name=waits --nodes=2\n"
                            "(slurm wait [^ ]*/run\n)+$"));
  EXPECT_TRUE(Order(id, wire::JOB_ORDER_RESUME).ok());
  EXPECT_TRUE(Becomes(id, "running"));
  EXPECT_THAT(Log(id), ContainsRegex("wait [^\n]*\nslurm submit --wait [^\n]*\n$")) << "it is submitted anew";
}

TEST_F(Host, AScriptOnSlurmGetsItsInterpreterAndItsArguments) {
  wire::SubmitRequest request;
  request.set_name("done");
  request.mutable_needs()->set_place(wire::JOB_ON_SLURM);
  wire::JobLaunch& launch = *request.mutable_launch();
  launch.set_job_yaml("name: done\n");
  launch.set_folder(root_.string());
  for (const char* const word : {"/usr/bin/env", "python3", "/srv/train.py", "--depth", "18"}) launch.add_script(word);
  const uint64_t id = host_->Submit(request).value().id();
  EXPECT_TRUE(Becomes(id, "done"));
  EXPECT_THAT(Log(id), HasSubstr("job.yaml --script /srv/train.py --python python3 --script-argument=--depth "
                                 "--script-argument=18 -- --job-name=done\n"));
}

TEST_F(Host, AFolderHasOneHost) {
  const auto second = JobHost::Open({.folder = root_ / "service", .program = root_ / "slackline"});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
}

TEST_F(Host, AFolderWithOtherFilesIsLeftAlone) {
  fs::create_directories(root_ / "mine" / "data");
  const fs::perms before = fs::status(root_ / "mine").permissions();
  const auto refused = JobHost::Open({.folder = root_ / "mine", .program = root_ / "slackline"});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.status().message(), HasSubstr("found files in "));
  EXPECT_EQ(fs::status(root_ / "mine").permissions(), before);
  EXPECT_FALSE(fs::exists(root_ / "mine" / "jobs"));
}

TEST_F(Host, AProgramThatIsMissingFailsTheJobAndNotTheHost) {
  fs::remove(root_ / "slackline");
  const uint64_t id = Submit("done");
  EXPECT_TRUE(Becomes(id, "failed"));
  EXPECT_THAT(Job(id).reason(), HasSubstr("No such file or directory"));
}

TEST_F(Host, ShowsTheEndOfALogFromTheBeginningOfALine) {
  const uint64_t id = Submit("done");
  ASSERT_TRUE(Becomes(id, "done"));
  std::ofstream(root_ / "service" / "jobs" / "1" / "log") << "first\nsecond\nthird\n";
  wire::ReadJobLogRequest request;
  request.set_id(id);
  request.set_from(-9);
  const auto reply = host_->ReadLog(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "third\n");
  EXPECT_EQ(reply->next(), 19);
  EXPECT_TRUE(reply->end());
  request.set_process("../../../etc/passwd");
  EXPECT_EQ(host_->ReadLog(request).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace slackline::cli::job_host_test
