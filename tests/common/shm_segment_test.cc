#include "common/shm/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

#include "common/shm/descriptor_socket.h"
#include "common/shm/host.h"
#include "common/shm/loan_flag.h"
#include "tests/common/shm_fixture.h"

namespace slackline::shm::shm_segment_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SegmentSizeLimits kAnySize{.bytes_min = 1, .bytes_max = uint64_t{1} << 40};

class SegmentTest : public ShmTest {
 protected:
  static std::unique_ptr<Segment> Make(uint64_t bytes, const std::string& name = "segment_test") {
    absl::StatusOr<std::unique_ptr<Segment>> segment = Segment::Create({.name = name, .bytes = bytes});
    EXPECT_TRUE(segment.ok()) << segment.status();
    return *std::move(segment);
  }
  static std::unique_ptr<MappedSegment> Map(const Segment& segment) {
    absl::StatusOr<std::unique_ptr<MappedSegment>> mapped =
        MappedSegment::Map(Duplicate(segment.descriptor()->get()), kAnySize);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    return *std::move(mapped);
  }
};

TEST_F(SegmentTest, BeginsWithZerosAndTakesMemoryOnlyWhenTouched) {
  const std::unique_ptr<Segment> segment = Make((uint64_t{1} << 30) + 1);
  EXPECT_EQ(segment->bytes(), (uint64_t{1} << 30) + PageBytes()) << "whole pages";
  EXPECT_EQ(segment->resident_bytes(), 0u);
  std::byte& last = segment->data()[segment->bytes() - 1];
  EXPECT_EQ(last, std::byte{0});
  last = std::byte{1};
  EXPECT_EQ(segment->resident_bytes(), PageBytes());
}

TEST_F(SegmentTest, ReaderSeesWhatIsWritten) {
  const std::unique_ptr<Segment> segment = Make(3 * PageBytes());
  const std::unique_ptr<MappedSegment> mapped = Map(*segment);
  ASSERT_EQ(mapped->bytes(), 3 * PageBytes());
  segment->data()[PageBytes() + 7] = std::byte{42};
  EXPECT_EQ(mapped->data()[PageBytes() + 7], std::byte{42});
}

TEST_F(SegmentTest, ReaderCannotWriteResizeOrSeal) {
  const std::unique_ptr<Segment> segment = Make(PageBytes());
  const int fd = segment->descriptor()->get();
  EXPECT_EQ(::mmap(nullptr, PageBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(::write(fd, "x", 1), -1);
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PageBytes()), 0);
  EXPECT_NE(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);

  const std::unique_ptr<MappedSegment> mapped = Map(*segment);
  EXPECT_NE(::mprotect(const_cast<std::byte*>(mapped->data()), PageBytes(), PROT_READ | PROT_WRITE), 0);
}

TEST_F(SegmentTest, NobodyCanResizeIt) {
  const std::unique_ptr<Segment> segment = Make(PageBytes());
  struct stat file {};
  ASSERT_EQ(::fstat(segment->descriptor()->get(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0400u);
  // The same user may change the mode; the seals stay.
  const std::string path = "/proc/self/fd/" + std::to_string(segment->descriptor()->get());
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const Descriptor writable(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(writable.valid());
  for (const uint64_t bytes : {uint64_t{0}, 2 * PageBytes()}) {
    EXPECT_NE(::ftruncate(writable.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_NE(::fcntl(writable.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(SegmentTest, ReleasedPagesGoBackToTheSystemAndReadAsZero) {
  const uint64_t page = PageBytes();
  const std::unique_ptr<Segment> segment = Make(4 * page);
  const std::unique_ptr<MappedSegment> mapped = Map(*segment);
  std::memset(segment->data(), 1, 4 * page);
  ASSERT_EQ(segment->resident_bytes(), 4 * page);

  segment->Release({.offset = 1, .bytes = 3 * page - 2});  // of three pages touched, one lies inside
  EXPECT_EQ(segment->resident_bytes(), 3 * page);
  EXPECT_EQ(mapped->data()[page - 1], std::byte{1});
  EXPECT_EQ(mapped->data()[page], std::byte{0});
  EXPECT_EQ(mapped->data()[2 * page - 1], std::byte{0});
  EXPECT_EQ(mapped->data()[2 * page], std::byte{1});

  segment->Release({.offset = 0, .bytes = 4 * page});
  EXPECT_EQ(segment->resident_bytes(), 0u);
  segment->Release({.offset = 4 * page, .bytes = 0});
  segment->data()[page] = std::byte{2};
  EXPECT_EQ(mapped->data()[page], std::byte{2}) << "it can be used again";
}

TEST_F(SegmentTest, HugePagesAreOnlyAWish) {
  const absl::StatusOr<std::unique_ptr<Segment>> segment =
      Segment::Create({.name = "segment_test", .bytes = 4 << 20, .huge_pages = true});
  ASSERT_TRUE(segment.ok()) << segment.status();
  std::memset((*segment)->data(), 1, (*segment)->bytes());
  EXPECT_EQ((*segment)->resident_bytes(), uint64_t{4 << 20});
}

TEST_F(SegmentTest, WhatTheSystemCannotMakeIsAnError) {
  const auto code = [](const SegmentOptions& options) { return Segment::Create(options).status().code(); };
  EXPECT_EQ(code({.name = "empty", .bytes = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.name = std::string(300, 'x'), .bytes = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.name = "overflow", .bytes = ~uint64_t{0}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.name = "huge", .bytes = uint64_t{1} << 60}), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Segment::Create({.name = "huge", .bytes = uint64_t{1} << 60}).status().message(),
              HasSubstr("'huge' of 1152921504606846976 bytes"));
}

TEST_F(SegmentTest, SizesOutsideOfTheLimitsAreRefused) {
  const std::unique_ptr<Segment> segment = Make(2 * PageBytes());
  const auto map = [&](const SegmentSizeLimits& limits) {
    return MappedSegment::Map(Duplicate(segment->descriptor()->get()), limits).status();
  };
  EXPECT_TRUE(map({.bytes_min = 2 * PageBytes(), .bytes_max = 2 * PageBytes()}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(map({.bytes_min = 2 * PageBytes() + 1, .bytes_max = 1 << 30})));
  const absl::Status status = map({.bytes_min = 1, .bytes_max = 10});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), "the segment has " + std::to_string(2 * PageBytes()) + " bytes; allowed are 1 to 10");
}

TEST_F(SegmentTest, WhatCouldKillTheReaderIsRefused) {
  const auto refusal = [](int fd) {
    const absl::Status status = MappedSegment::Map(Descriptor(fd), kAnySize).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(refusal(ends[0]), "the descriptor is not one of shared memory");
  EXPECT_EQ(refusal(ends[1]), "the descriptor is not one of shared memory");
  EXPECT_EQ(refusal(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)), "the descriptor is not one of shared memory");
  EXPECT_EQ(refusal(-1), "the descriptor is not one of shared memory");

  // The peer could cut it short under the reader.
  const int shrinkable = ::memfd_create("shrinkable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(shrinkable, 4096), 0);
  ASSERT_EQ(::fcntl(shrinkable, F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(refusal(shrinkable), "the segment has the seals 4; F_SEAL_SHRINK (2) must be among them");
}

// Processes that have the segment of that name open or mapped.
std::set<pid_t> HoldersOf(const std::string& name) {
  std::set<pid_t> holders;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(process.path().filename().c_str());
    if (pid == 0) continue;
    std::stringstream maps;
    maps << std::ifstream(process.path() / "maps").rdbuf();
    if (maps.str().find("/memfd:" + name) != std::string::npos) holders.insert(pid);
    std::error_code gone;  // processes come and go
    for (std::filesystem::directory_iterator fd(process.path() / "fd", gone), end; !gone && fd != end;
         fd.increment(gone)) {
      std::error_code closed;
      if (std::filesystem::read_symlink(fd->path(), closed).string().find("/memfd:" + name) == 0) holders.insert(pid);
    }
  }
  return holders;
}

// Makes a segment, fills it, hands its descriptor over and waits for its death.
[[noreturn]] void BecomeWriter(const std::string& name, int socket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  absl::StatusOr<std::unique_ptr<Segment>> segment = Segment::Create({.name = name, .bytes = 1 << 20});
  if (!segment.ok()) ::_exit(1);
  std::memset((*segment)->data(), 7, (*segment)->bytes());
  const int fd = (*segment)->descriptor()->get();
  if (!SendPacket(socket, {}, "", {fd}).ok()) ::_exit(2);
  while (true) ::pause();
}

TEST_F(SegmentTest, VanishesWithItsProcessesAfterKill) {
  const absl::StatusOr<std::string> name = RandomAbstractName();
  ASSERT_TRUE(name.ok());
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor own(ends[0]);
  Descriptor childs(ends[1]);
  const timeval patience{.tv_sec = 30, .tv_usec = 0};
  ASSERT_EQ(::setsockopt(own.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) BecomeWriter(*name, childs.get());
  childs = Descriptor();
  absl::StatusOr<Packet> packet = ReceivePacket(own.get(), 1);
  if (packet.ok()) {
    EXPECT_THAT(HoldersOf(*name), testing::Contains(child));
  }
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(packet.ok()) << packet.status();

  absl::StatusOr<std::unique_ptr<MappedSegment>> mapped =
      MappedSegment::Map(std::move(packet->descriptors.at(0)), kAnySize);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_THAT(HoldersOf(*name), ElementsAre(::getpid())) << "the reader is the last one";
  EXPECT_TRUE(std::all_of((*mapped)->data(), (*mapped)->data() + (*mapped)->bytes(),
                          [](std::byte value) { return value == std::byte{7}; }));
  mapped->reset();
  EXPECT_THAT(HoldersOf(*name), IsEmpty());
}

TEST_F(ShmTest, LoanIsSeenToBeTakenBack) {
  auto flag = LoanFlag::Create();
  ASSERT_TRUE(flag.ok()) << flag.status();
  auto view = LoanFlagView::Map(Duplicate((*flag)->descriptor()->get()));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE((*view)->StillLent());
  (*flag)->TakeBack();
  EXPECT_FALSE((*view)->StillLent());
  // A writer that dies has written nothing since.
  auto second = *LoanFlag::Create();
  view = LoanFlagView::Map(Duplicate(second->descriptor()->get()));
  second.reset();
  EXPECT_TRUE((*view)->StillLent());
}

TEST(SocketScope, IsKnownAndStays) {
  EXPECT_THAT(SocketScope(), HasSubstr(" net:["));
  EXPECT_EQ(SocketScope(), SocketScope());
}

TEST(SocketScope, DiffersInAnotherNetwork) {
  constexpr int kSame = 1, kNotAllowed = 2;
  const std::string here = SocketScope();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(kNotAllowed);
    ::_exit(SocketScope() == here ? kSame : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "this user may not make network namespaces";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace slackline::shm::shm_segment_test
