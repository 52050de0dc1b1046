#include "cli/run/run_lock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"

namespace slackline::cli::run_lock_test {
namespace {

using ::testing::HasSubstr;

// As NFS before version 4 says without lockd.
int NoLocks(int, int) {
  errno = ENOLCK;
  return -1;
}

class RunLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/run_lock_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    run_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(run_); }

  std::string Held() const {
    std::ifstream in(run_ / "lock.held");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void SetHeld(const std::string& text) const { std::ofstream(run_ / "lock.held") << text; }
  // The text with another line for one that begins with `name`.
  static std::string With(std::string text, const std::string& name, const std::string& value) {
    const size_t begin = text.find("\n" + name + " ") + 1;
    return text.replace(begin, text.find('\n', begin) - begin, name + " " + value);
  }
  static std::string Here() {
    char host[256] = "";
    ::gethostname(host, sizeof(host) - 1);
    return absl::StrCat("process ", ::getpid(), " on ", host);
  }

  std::filesystem::path run_;
};

TEST_F(RunLockTest, OneAtATimeHasIt) {
  std::optional<RunLock> lock;
  {
    absl::StatusOr<RunLock> taken = RunLock::Take(run_);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(taken->by_file(), "");
    lock.emplace(*std::move(taken));
  }
  EXPECT_FALSE(std::filesystem::exists(run_ / "lock.held"));
  EXPECT_EQ(WhoRuns(run_), Here());
  const absl::Status second = RunLock::Take(run_).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second));
  EXPECT_THAT(second.message(), HasSubstr("still runs: " + Here()));
  lock.reset();
  EXPECT_EQ(WhoRuns(run_), "");
  EXPECT_EQ(WhoRan(run_), Here());
  EXPECT_TRUE(RunLock::Take(run_).ok());
}

TEST_F(RunLockTest, WithoutLocksAFileStandsForOne) {
  std::optional<RunLock> lock;
  {
    absl::StatusOr<RunLock> taken = RunLock::Take(run_, {}, NoLocks);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_THAT(taken->by_file(), HasSubstr("knows no locks (No locks available)"));
    EXPECT_THAT(taken->by_file(), HasSubstr((run_ / "lock.held").string()));
    lock.emplace(*std::move(taken));
  }
  EXPECT_EQ(WhoRuns(run_, NoLocks), Here());
  const absl::Status second = RunLock::Take(run_, {}, NoLocks).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second));
  EXPECT_THAT(second.message(), HasSubstr(absl::StrCat("still runs: ", Here(),
                                                       " supervises it; the file system knows "
                                                       "no locks: if that process is gone, remove ",
                                                       (run_ / "lock.held").string())));
  lock.reset();
  EXPECT_EQ(WhoRuns(run_, NoLocks), "");
  EXPECT_EQ(WhoRan(run_), Here());
  // Nothing is left but the file that says who was the last.
  const std::filesystem::directory_iterator entries(run_);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST_F(RunLockTest, TheFileOfAProcessThatIsGoneIsTakenOver) {
  const pid_t child = ::fork();
  if (child == 0) {
    absl::StatusOr<RunLock> taken = RunLock::Take(run_, {}, NoLocks);
    // As if it were killed: nothing is tidied up.
    ::_exit(taken.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_THAT(Held(), HasSubstr(absl::StrCat("process ", child, " on ")));
  EXPECT_EQ(WhoRuns(run_, NoLocks), "");
  EXPECT_TRUE(RunLock::Take(run_, {}, NoLocks).ok());
}

TEST_F(RunLockTest, AnotherProcessThatHasTheNumberNowIsNotTheHolder) {
  std::string text;
  {
    const absl::StatusOr<RunLock> taken = RunLock::Take(run_, {}, NoLocks);
    ASSERT_TRUE(taken.ok()) << taken.status();
    text = Held();
  }
  SetHeld(text);
  EXPECT_FALSE(RunLock::Take(run_, {}, NoLocks).ok()) << "this process";
  SetHeld(With(text, "started", "1"));
  EXPECT_TRUE(RunLock::Take(run_, {}, NoLocks).ok());
  SetHeld(With(text, "boot", "another"));
  EXPECT_TRUE(RunLock::Take(run_, {}, NoLocks).ok()) << "the machine was booted since";
}

TEST_F(RunLockTest, OfAnotherMachineOnlyAnEarlierAttemptOfTheJobIsTakenOver) {
  std::string text;
  {
    const absl::StatusOr<RunLock> taken = RunLock::Take(run_, {"17", 0}, NoLocks);
    ASSERT_TRUE(taken.ok()) << taken.status();
    text = absl::StrCat("process 1 on elsewhere", Held().substr(Held().find('\n')));
  }
  SetHeld(text);
  EXPECT_EQ(WhoRuns(run_, NoLocks), "process 1 on elsewhere");
  EXPECT_THAT(RunLock::Take(run_, {"17", 0}, NoLocks).status().message(),
              HasSubstr("process 1 on elsewhere supervises it"));
  EXPECT_FALSE(RunLock::Take(run_, {"18", 1}, NoLocks).ok()) << "another job";
  EXPECT_FALSE(RunLock::Take(run_, {}, NoLocks).ok()) << "no job";
  EXPECT_TRUE(RunLock::Take(run_, {"17", 1}, NoLocks).ok());
}

TEST_F(RunLockTest, AFolderThatCannotBeWrittenIsSaid) {
  EXPECT_THAT(std::string(RunLock::Take(run_ / "not" / "there").status().message()), HasSubstr("cannot write "));
}

}  // namespace
}  // namespace slackline::cli::run_lock_test
