#include "cli/run/crew.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

// How much the wall clock of this program gains with every look at it.
static std::atomic<int64_t> wall_clock_step_s = 0;

// In the place of the system's, for libraries too.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static std::atomic<int64_t> gained_s = 0;
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += gained_s += wall_clock_step_s;
  return result;
}

namespace slackline::cli::crew_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(30);

class CrewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/crew_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    absl::StatusOr<RunFolder> folder = RunFolder::Create(root_ / "run");
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
    crew_.emplace(*folder_, signals_);
  }
  void TearDown() override {
    crew_.reset();
    std::filesystem::remove_all(root_);
  }

  void Start(security::Role role, const std::string& name, const std::string& script) {
    const absl::Status status = crew_->Start(role, name, {"/bin/sh", "-c", script});
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<Crew::End> ReapOne() {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      std::vector<Crew::End> ends = crew_->Reap();
      if (!ends.empty()) return ends;
      signals_.Wait(deadline - absl::Now());
    }
    return {};
  }

  // A child that says that its trap is set by making a file.
  void StartStubborn(const std::string& name) {
    const std::filesystem::path ready = root_ / (name + ".ready");
    Start(security::Role::kServer, name,
          "trap '' TERM; : > " + ready.string() + "; while :; do read x < /dev/zero; done");
    const absl::Time deadline = absl::Now() + kPatience;
    while (!std::filesystem::exists(ready) && absl::Now() < deadline) signals_.Wait(absl::Milliseconds(5));
    ASSERT_TRUE(std::filesystem::exists(ready));
  }

  nlohmann::json Records() const {
    std::ifstream in(folder_->path() / "processes.json");
    return nlohmann::json::parse(in);
  }

  std::filesystem::path root_;
  SignalQueue signals_;
  std::optional<RunFolder> folder_;
  std::optional<Crew> crew_;
};

constexpr char kForever[] = "exec tail -f /dev/null";

TEST_F(CrewTest, ADeathIsToldOnceWithItsLastWords) {
  Start(security::Role::kWorker, "worker-1", "echo first; echo 'no such tensor' >&2; exit 1");
  const std::vector<Crew::End> ends = ReapOne();
  ASSERT_EQ(ends.size(), 1);
  EXPECT_EQ(ends[0].Describe(), "worker-1 (process " + std::to_string(ends[0].pid) +
                                    ") died: exit code 1; its last output:\n    first\n    no such tensor");
  EXPECT_THAT(crew_->Reap(), IsEmpty());
}

TEST_F(CrewTest, AnEndThatWasNotToldIsStillWatched) {
  Start(security::Role::kWorker, "worker-1", "exit 1");
  const absl::Time deadline = absl::Now() + kPatience;
  while (crew_->Running() > 0 && absl::Now() < deadline) signals_.Wait(deadline - absl::Now());
  EXPECT_EQ(crew_->Running(security::Role::kWorker), 0);
  EXPECT_EQ(crew_->Watched(security::Role::kWorker), 1);
  ASSERT_EQ(crew_->Reap().size(), 1);
  EXPECT_EQ(crew_->Watched(security::Role::kWorker), 0);
}

TEST_F(CrewTest, ARestartIsCountedAndKeepsTheLog) {
  Start(security::Role::kWorker, "worker-1", "echo one; exit 1");
  ASSERT_EQ(ReapOne().size(), 1);
  Start(security::Role::kWorker, "worker-1", "echo two; exit 1");
  const std::vector<Crew::End> ends = ReapOne();
  ASSERT_EQ(ends.size(), 1);
  // Of this life; the log has both.
  EXPECT_EQ(ends[0].last_words, "two");
  std::ifstream log(folder_->log("worker-1"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(log), {}), "one\ntwo\n");
  const nlohmann::json records = Records();
  ASSERT_EQ(records.size(), 1);
  EXPECT_EQ(records[0]["restarts"], 1);
  EXPECT_EQ(records[0]["state"], "exit code 1");
}

TEST_F(CrewTest, ProcessesAreOnRecord) {
  Start(security::Role::kScheduler, "scheduler", kForever);
  Start(security::Role::kServer, "ps-1", kForever);
  const nlohmann::json records = Records();
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(records[1]["name"], "ps-1");
  EXPECT_EQ(records[1]["role"], "server");
  EXPECT_EQ(records[1]["state"], "running");
  EXPECT_EQ(::kill(records[1]["pid"].get<pid_t>(), 0), 0);
}

TEST_F(CrewTest, StopAsksInTheOrderInWhichTheyNeedOneAnother) {
  const std::string order = (root_ / "order").string();
  for (const auto& [role, name] :
       {std::pair(security::Role::kScheduler, "scheduler"), std::pair(security::Role::kServer, "ps-1"),
        std::pair(security::Role::kWorker, "worker-1")}) {
    const std::string ready = (root_ / name).string();
    Start(role, name,
          "trap 'echo " + std::string(name) + " >> " + order + "; kill $!; exit 0' TERM; : > " + ready +
              "; tail -f /dev/null & wait");
    const absl::Time deadline = absl::Now() + kPatience;
    while (!std::filesystem::exists(ready) && absl::Now() < deadline) signals_.Wait(absl::Milliseconds(5));
  }
  EXPECT_THAT(crew_->Stop({.leave = absl::ZeroDuration(), .terminate = kPatience}), IsEmpty());
  EXPECT_EQ(crew_->Running(), 0);
  std::ostringstream text;
  text << std::ifstream(order).rdbuf();
  EXPECT_EQ(text.str(), "worker-1\nps-1\nscheduler\n");
}

TEST_F(CrewTest, WhoDoesNotLeaveIsKilledAndNamed) {
  StartStubborn("ps-1");
  const std::vector<std::string> said =
      crew_->Stop({.leave = absl::ZeroDuration(), .terminate = absl::Milliseconds(50)});
  ASSERT_EQ(said.size(), 1);
  EXPECT_THAT(said[0], HasSubstr("ps-1 (process "));
  EXPECT_THAT(said[0], HasSubstr("did not leave in time and was killed"));
  EXPECT_EQ(crew_->Running(), 0);
}

TEST_F(CrewTest, ASecondStopSignalKillsAtOnce) {
  StartStubborn("ps-1");
  ASSERT_EQ(::raise(SIGINT), 0);
  const std::vector<std::string> said = crew_->Stop({.leave = absl::Hours(1), .terminate = absl::Hours(1)});
  ASSERT_EQ(said.size(), 1);
  EXPECT_THAT(said[0], HasSubstr("did not leave at once and was killed"));
}

TEST_F(CrewTest, AStepOfTheWallClockEndsNoWait) {
  const std::filesystem::path ready = root_ / "ready";
  // Takes a moment over its end.
  Start(security::Role::kServer, "ps-1",
        "trap 'i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; kill $!; exit 0' TERM; tail -f /dev/null & : > " +
            ready.string() + "; wait");
  while (!std::filesystem::exists(ready) && crew_->Running() > 0) signals_.Wait(absl::Milliseconds(5));
  wall_clock_step_s = 3600;
  const std::vector<std::string> said = crew_->Stop({.leave = absl::ZeroDuration(), .terminate = kPatience});
  wall_clock_step_s = 0;
  EXPECT_THAT(said, IsEmpty());
}

// What is ignored when a queue is made.
class Ignored {
 public:
  explicit Ignored(int signal) : signal_(signal), before_(::signal(signal, SIG_IGN)) {}
  ~Ignored() {
    ::signal(signal_, SIG_IGN);  // forgets one that is held
    ::signal(signal_, before_);
  }

 private:
  const int signal_;
  const sighandler_t before_;
};

TEST(SignalQueue, SignalsThatWereIgnoredStayIgnored) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1}) {
    const Ignored ignored(signal);
    SignalQueue signals;
    ASSERT_EQ(::raise(signal), 0);
    EXPECT_EQ(signals.Wait(absl::ZeroDuration()), std::nullopt) << signal;
  }
  SignalQueue signals;
  ASSERT_EQ(::raise(SIGHUP), 0);
  EXPECT_EQ(signals.Wait(absl::ZeroDuration()), SIGHUP);
}

TEST_F(CrewTest, EndsAreSeenThoughSigchldWasIgnored) {
  ::signal(SIGCHLD, SIG_IGN);
  SignalQueue signals;
  Start(security::Role::kWorker, "worker-1", "exit 3");
  const std::vector<Crew::End> ends = ReapOne();
  ASSERT_EQ(ends.size(), 1);
  EXPECT_EQ(ends[0].how.Describe(), "exit code 3");
}

TEST(RunFolder, RefusesAPathThatIsNotUtf8) {
  std::string pattern = ::testing::TempDir() + "/run_folder_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path path = pattern + "/l\xe4ufe";
  for (const auto& folder : {RunFolder::Create(path), RunFolder::CreateUnused(path), RunFolder::Reopen(path)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(folder.status())) << folder.status();
    EXPECT_THAT(std::string(folder.status().message()), HasSubstr("found bytes that are not UTF-8; allowed is"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(pattern)) << "nothing was made";
  std::filesystem::remove_all(pattern);
}

TEST(RunFolder, RefusesAFolderWithFiles) {
  std::string pattern = ::testing::TempDir() + "/run_folder_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  EXPECT_TRUE(RunFolder::Create(pattern).ok()) << "an empty one is fine";
  const absl::Status status = RunFolder::Create(pattern).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status));
  EXPECT_EQ(status.message(), "run folder " + pattern + ": found files in it; allowed is a new or an empty folder");
  std::filesystem::remove_all(pattern);
}

TEST(RunFolder, RunsThatWantTheSameUnusedFolderGetTheirOwn) {
  std::string pattern = ::testing::TempDir() + "/run_folder_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path wanted = std::filesystem::path(pattern) / "runs" / "trial";
  for (const std::string ending : {"", "-2", "-3"}) {
    const absl::StatusOr<RunFolder> folder = RunFolder::CreateUnused(wanted);
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_EQ(folder->path(), wanted.string() + ending);
  }
  std::ofstream(pattern + "/file").close();
  EXPECT_TRUE(absl::IsUnavailable(RunFolder::CreateUnused(pattern + "/file/trial").status()));
  std::filesystem::remove_all(pattern);
}

TEST(RunFolder, TheDefaultNamesJobAndTime) {
  const absl::Time now = absl::FromCivil(absl::CivilSecond(2025, 1, 31, 12, 0, 5), absl::LocalTimeZone());
  EXPECT_EQ(DefaultRunFolder("trial", now), "runs/trial-20250131-120005");
}

}  // namespace
}  // namespace slackline::cli::crew_test
