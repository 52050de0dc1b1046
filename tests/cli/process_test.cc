#include "cli/base/process.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/base/shell_word.h"

namespace slackline::cli::process_test {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/process_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<Process> Shell(const std::string& script) {
    return Process::Start({"child", {"/bin/sh", "-c", script}, folder_ / "child.log"});
  }

  std::filesystem::path folder_;
};

TEST_F(ProcessTest, TellsTheExitCode) {
  absl::StatusOr<Process> process = Shell("exit 3");
  ASSERT_TRUE(process.ok()) << process.status();
  const std::optional<ProcessEnd> end = process->WaitFor(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_FALSE(end->ok());
  EXPECT_EQ(end->Describe(), "exit code 3");
  EXPECT_EQ(process->Poll()->code, 3) << "the end stays known";
}

TEST_F(ProcessTest, TellsTheSignal) {
  absl::StatusOr<Process> process = Shell("kill -9 $$");
  ASSERT_TRUE(process.ok()) << process.status();
  const std::optional<ProcessEnd> end = process->WaitFor(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->Describe(), "killed by signal 9 (Killed)");
}

TEST_F(ProcessTest, AMissingProgramIsNamed) {
  const absl::Status status = Process::Start({"child", {"/nowhere/program"}, folder_ / "child.log"}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), "cannot start /nowhere/program: No such file or directory");
}

TEST_F(ProcessTest, LastWordsAreTheLastLinesOfBothStreams) {
  absl::StatusOr<Process> process =
      Shell("for i in 1 2 3; do echo line $i; done; echo >&2; echo 'bad end' >&2; exit 1");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitFor(kPatience).has_value());
  EXPECT_EQ(process->LastWords(2), "line 3\nbad end");
  EXPECT_EQ(process->LastWords(100), "line 1\nline 2\nline 3\nbad end");
}

TEST_F(ProcessTest, LastWordsInJsonAreReadAloud) {
  absl::StatusOr<Process> process = Shell(R"(cat <<'END'
{"time":"T","level":"error","process":"ps-1","job":"j","message":"a \"b\"\nc"}
{"x":1}
{
END
)");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitFor(kPatience).has_value());
  EXPECT_EQ(process->LastWords(), "T ps-1 error: a \"b\"\nc\n{\"x\":1}\n{");
}

TEST_F(ProcessTest, LastWordsAreNotThoseOfAnEarlierLife) {
  for (const char* const words : {"first", "second"}) {
    absl::StatusOr<Process> process = Shell(absl::StrCat("echo ", words));
    ASSERT_TRUE(process.ok()) << process.status();
    ASSERT_TRUE(process->WaitFor(kPatience).has_value());
    EXPECT_EQ(process->LastWords(), words);
  }
  absl::StatusOr<Process> silent = Shell("exit 1");
  ASSERT_TRUE(silent.ok()) << silent.status();
  ASSERT_TRUE(silent->WaitFor(kPatience).has_value());
  EXPECT_EQ(silent->LastWords(), "");
}

TEST_F(ProcessTest, LastWordsOfAHugeLogAreShort) {
  absl::StatusOr<Process> process =
      Shell("i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; echo end");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitFor(kPatience).has_value());
  const std::string words = process->LastWords(100000);
  EXPECT_LE(words.size(), 4096);
  EXPECT_THAT(words, ::testing::EndsWith("0123456789\nend"));
}

TEST_F(ProcessTest, ARunningChildHasNoEndUntilItIsSignalled) {
  absl::StatusOr<Process> process = Shell("exec cat /dev/zero > /dev/null");
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_FALSE(process->Poll().has_value());
  EXPECT_FALSE(process->WaitFor(absl::ZeroDuration()).has_value());
  process->Signal(SIGTERM);
  const std::optional<ProcessEnd> end = process->WaitFor(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, SIGTERM);
}

TEST_F(ProcessTest, DestructionLeavesNoProcess) {
  pid_t pid = 0;
  {
    absl::StatusOr<Process> process = Shell("trap '' TERM; exec cat /dev/zero > /dev/null");
    ASSERT_TRUE(process.ok()) << process.status();
    pid = process->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST_F(ProcessTest, WhatAChildLeavesBehindEndsWithIt) {
  absl::StatusOr<Process> process = Shell("sleep 1000 & echo $!");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitFor(kPatience).has_value());
  const std::string stat = absl::StrCat("/proc/", process->LastWords(1), "/stat");
  // Nobody may reap it here, so that it stays as a zombie.
  const auto lives = [&] {
    std::string text;
    std::ifstream in(stat);
    std::getline(in, text);
    return !text.empty() && text.substr(text.rfind(')') + 2, 1) != "Z";
  };
  const absl::Time deadline = absl::Now() + kPatience;
  while (lives() && absl::Now() < deadline) absl::Notification().WaitForNotificationWithTimeout(absl::Milliseconds(5));
  EXPECT_FALSE(lives());
}

TEST_F(ProcessTest, ChildrenHaveTheirOwnGroupSoThatCtrlCDoesNotReachThem) {
  absl::StatusOr<Process> process = Shell("exec cat /dev/zero > /dev/null");
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(::getpgid(process->pid()), process->pid());
}

TEST_F(ProcessTest, ChildrenGetNoInputAndNoBlockedSignals) {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  absl::StatusOr<Process> process = Shell("cat; grep SigBlk /proc/self/status");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitFor(kPatience).has_value());
  EXPECT_THAT(process->LastWords(), HasSubstr("0000000000000000"));
}

TEST_F(ProcessTest, ChildrenHearTheLauncherWhateverItIgnoresItself) {
  const int kSignals[] = {SIGINT, SIGTERM, SIGPIPE};
  for (const int signal : kSignals) ::signal(signal, SIG_IGN);
  absl::StatusOr<Process> process = Shell("grep SigIgn /proc/self/status");
  for (const int signal : kSignals) ::signal(signal, SIG_DFL);
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitFor(kPatience).has_value());
  EXPECT_THAT(process->LastWords(), HasSubstr("0000000000000000"));
}

TEST_F(ProcessTest, LastWordsThatAreNotUtf8BecomeSo) {
  absl::StatusOr<Process> process = Shell("printf 'Fehler: ung\\374ltig\\n'");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitFor(kPatience).has_value());
  EXPECT_EQ(process->LastWords(), "Fehler: ung\xef\xbf\xbdltig");
}

TEST(ShellWord, IsQuotedOnlyWhereAShellWouldReadSomethingElse) {
  EXPECT_EQ(ShellWord("/runs/first-2.1"), "/runs/first-2.1");
  for (const std::string text : {"", "r 1", "-r", "l\xc3\xa4ufe/r", "it's", "$HOME", "a;b", "a\nb", "*", "~x"}) {
    const std::string command = absl::StrCat("test ", ShellWord(text), "x = \"$TEXT\"x");
    ASSERT_EQ(::setenv("TEXT", text.c_str(), 1), 0);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

}  // namespace
}  // namespace slackline::cli::process_test
