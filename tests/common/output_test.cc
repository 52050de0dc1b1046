// Output whose reader reads, has stopped reading, or is gone.
#include "common/log/output.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include "common/time/clock.h"

namespace slackline::output_test {
namespace {

// A pipe of which both ends are this test's.
class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    ::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  }
  ~Pipe() {
    CloseReader();
    CloseWriter();
  }
  int writer() const { return ends_[1]; }
  void CloseReader() { Close(ends_[0]); }
  void CloseWriter() { Close(ends_[1]); }
  // All that is written until the writer is closed.
  std::string Read() {
    std::string text;
    char bytes[4096];
    for (ssize_t size; (size = ::read(ends_[0], bytes, sizeof(bytes))) > 0;)
      text.append(bytes, static_cast<size_t>(size));
    return text;
  }

 private:
  static void Close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  int ends_[2] = {-1, -1};
};

std::string Line(int number) { return "line " + std::to_string(number) + std::string(100, '.') + "\n"; }

TEST(Output, AReaderGetsAllInOrder) {
  Pipe pipe;
  std::string expected, got;
  std::thread reader([&] { got = pipe.Read(); });
  {
    Output out(pipe.writer());
    for (int i = 0; i < 1000; ++i) {
      out.Write(Line(i));
      expected += Line(i);
    }
    EXPECT_FALSE(out.stuck());
    EXPECT_EQ(out.TakeLeftOut(), 0u);
  }
  pipe.CloseWriter();
  reader.join();
  EXPECT_EQ(got, expected);
}

TEST(Output, AReaderThatStopsReadingHoldsUpNobodyAndMissesOnlyWholeLines) {
  Pipe pipe;
  auto out = std::make_unique<Output>(pipe.writer());
  const absl::Time begin = SteadyTime().Now();
  constexpr int kLines = 10000;
  for (int i = 0; i < kLines; ++i) out->Write(Line(i));
  EXPECT_LT(SteadyTime().Now() - begin, absl::Seconds(5));
  EXPECT_TRUE(out->stuck());
  EXPECT_EQ(out->TakeLeftOut(), 0u) << "there is no room to say so";

  std::string got;
  std::thread reader([&] { got = pipe.Read(); });
  out->Flush();  // does not wait: the reader is known to have stopped
  const absl::Time deadline = SteadyTime().Now() + absl::Seconds(30);
  while (out->stuck() && SteadyTime().Now() < deadline) std::this_thread::yield();
  const uint64_t left_out = out->TakeLeftOut();
  EXPECT_GT(left_out, 0u);
  EXPECT_EQ(out->TakeLeftOut(), 0u) << "it is said once";
  out.reset();
  pipe.CloseWriter();
  reader.join();
  std::string expected;
  for (int i = 0; i < kLines - static_cast<int>(left_out); ++i) expected += Line(i);
  EXPECT_EQ(got, expected);
}

TEST(Output, TheEndDoesNotWaitForAReaderWhoHasStopped) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  // The thread's own: it still writes when the pipe is gone.
  const int writer = ::dup(pipe.writer());
  const absl::Time begin = SteadyTime().Now();
  {
    Output out(writer, /*end_max=*/absl::Milliseconds(50));
    out.Write(std::string(100000, 'x'));
    EXPECT_TRUE(out.stuck());
  }
  EXPECT_LT(SteadyTime().Now() - begin, absl::Seconds(5));
  // The thread's write fails now, and the thread ends.
  pipe.CloseReader();
}

TEST(Output, AReaderThatIsGoneIsASignalThatMayBeIgnored) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.CloseReader();
  Output out(pipe.writer());
  for (int i = 0; i < 100; ++i) out.Write(Line(i));
  EXPECT_FALSE(out.stuck());
  ::signal(SIGPIPE, before);
}

TEST(OutputDeathTest, AReaderThatIsGoneEndsAProgramThatDoesNotIgnoreIt) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto write = [] {
    ::signal(SIGPIPE, SIG_DFL);
    Pipe pipe;
    pipe.CloseReader();
    Output out(pipe.writer());
    out.Write("anybody?\n");
    out.Flush();
  };
  EXPECT_EXIT(write(), ::testing::KilledBySignal(SIGPIPE), "");
}

TEST(Output, AForkedChildWritesByItself) {
  Pipe pipe;
  Output out(pipe.writer());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    out.Write("child\n");
    out.Flush();
    ::_exit(0);
  }
  out.Flush();
  pipe.CloseWriter();
  EXPECT_EQ(pipe.Read(), "child\n");
}

}  // namespace
}  // namespace slackline::output_test
