#include "cli/run/node_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace slackline::cli::node_log_test {
namespace {

constexpr int kPatienceMs = 30000;

TEST(ScriptLines, WaitForTheirEnd) {
  ScriptLines lines(3);
  EXPECT_EQ(lines.Add("loss"), "");
  EXPECT_EQ(lines.Add(" 2.5\nlo"), "[3] loss 2.5\n");
  EXPECT_EQ(lines.Add("ss 2.4\n\nloss"), "[3] loss 2.4\n\n");
  EXPECT_EQ(lines.Rest(), "[3] loss\n");
  EXPECT_EQ(lines.Rest(), "");
}

TEST(ScriptLines, HaveTheEndsOfProgressBars) {
  ScriptLines lines(0);
  EXPECT_EQ(lines.Add("\r 10 %"), "\r");
  EXPECT_EQ(lines.Add("\r 20 %\r\n"), "[0]  10 %\r[0]  20 %\r\n");
}

TEST(ScriptLines, StayJsonButNotAsPythonPrintsDicts) {
  ScriptLines lines(1);
  EXPECT_EQ(lines.Add("{\"level\":\"info\"}\n{'loss': 2}\n"), "{\"level\":\"info\"}\n[1] {'loss': 2}\n");
}

TEST(ScriptLines, AreCutWhenTheyHaveNoEnd) {
  ScriptLines lines(0);
  const std::string half(ScriptLines::kLineBytesMax / 2, 'x');
  EXPECT_EQ(lines.Add(half), "");
  EXPECT_EQ(lines.Add(half), absl::StrCat("[0] ", half, half, "\n"));
}

TEST(ScriptLines, RememberTheLastException) {
  ScriptLines lines(0);
  EXPECT_EQ(lines.exception(), "");
  lines.Add("Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: no more\nbye\n");
  EXPECT_EQ(lines.exception(), "ValueError: no more");
  lines.Add(
      "Traceback (most recent call last):\n  raise\n\nDuring handling\nTraceback (most recent call last):\nKeyErr");
  lines.Rest();
  EXPECT_EQ(lines.exception(), "KeyErr");
}

class NodeLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/node_log_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    for (const int fd : fds_) ::close(fd);
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<NodeLog> Open(int log) {
    absl::StatusOr<std::unique_ptr<NodeLog>> opened = NodeLog::Open(folder_, 2, log);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  // Opens two scripts' log, which Next() reads.
  std::unique_ptr<NodeLog> OpenPipe() {
    fds_.resize(2);
    EXPECT_EQ(::pipe2(fds_.data(), O_CLOEXEC), 0);
    return Open(fds_[1]);
  }
  // Returns what comes next in the log.
  std::string Next() const {
    pollfd wait{fds_[0], POLLIN, 0};
    char bytes[1000];
    if (::poll(&wait, 1, kPatienceMs) != 1) return "nothing";
    return {bytes, static_cast<size_t>(::read(fds_[0], bytes, sizeof(bytes)))};
  }

  std::filesystem::path folder_;
  std::vector<int> fds_;
};

TEST_F(NodeLogTest, LinesOfTwoScriptsAreWhole) {
  const std::unique_ptr<NodeLog> log = OpenPipe();
  std::ofstream first(log->PipeOf(0)), second(log->PipeOf(1));
  first << "half a" << std::flush;
  second << "another\n" << std::flush;
  EXPECT_EQ(Next(), "[1] another\n");
  first << " line\n" << std::flush;
  EXPECT_EQ(Next(), "[0] half a line\n");
}

TEST_F(NodeLogTest, OneScriptMayEndBeforeTheOther) {
  const std::unique_ptr<NodeLog> log = OpenPipe();
  std::ofstream first(log->PipeOf(0)), second(log->PipeOf(1));
  first << "ends\n" << std::flush;
  EXPECT_EQ(Next(), "[0] ends\n");
  first.close();
  second << "goes on\n" << std::flush;
  EXPECT_EQ(Next(), "[1] goes on\n");
}

TEST_F(NodeLogTest, EndsWithAllThatWasWritten) {
  fds_.push_back(::open((folder_ / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  std::unique_ptr<NodeLog> log = Open(fds_[0]);
  // The second one stays open, as that of a process which the script has left behind.
  std::ofstream script(log->PipeOf(1)), left_behind(log->PipeOf(1));
  for (int i = 0; i < 30000; ++i) script << "line " << i << "\n";
  script << "unended" << std::flush;
  script.close();
  log.reset();
  std::ifstream in(folder_ / "log");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_TRUE(absl::EndsWith(text, "[1] line 29999\n[1] unended\n")) << text.size();
}

}  // namespace
}  // namespace slackline::cli::node_log_test
