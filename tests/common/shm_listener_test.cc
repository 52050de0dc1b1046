#include "common/shm/descriptor_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/shm/descriptor_socket.h"
#include "common/shm/segment.h"
#include "tests/common/shm_fixture.h"

namespace slackline::shm::shm_listener_test {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

absl::StatusOr<DescriptorReply> Echo(DescriptorMessage request) {
  DescriptorReply reply{.message = std::move(request.message), .descriptors = {}};
  for (Descriptor& descriptor : request.descriptors) {
    reply.descriptors.push_back(std::make_shared<const Descriptor>(std::move(descriptor)));
  }
  return reply;
}

// A peer that keeps to no rule.
class RawPeer {
 public:
  RawPeer() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const timeval patience = absl::ToTimeval(kPatience);
    EXPECT_EQ(::setsockopt(socket(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  }
  explicit RawPeer(const std::string& name) : RawPeer() { Connect(name); }

  void Connect(const std::string& name) const {
    const absl::StatusOr<AbstractAddress> address = MakeAbstractAddress(name);
    EXPECT_EQ(::connect(socket(), address->get(), address->bytes), 0) << ::strerror(errno);
  }

  int socket() const { return socket_.get(); }
  absl::Status Ask() const {
    EXPECT_TRUE(SendPacket(socket(), {}, "well?", {}).ok());
    return Answer();
  }
  // The next packet as the status that a proper peer would see.
  absl::Status Answer() const {
    const absl::StatusOr<Packet> packet = ReceivePacket(socket(), kPacketDescriptorsMax);
    if (!packet.ok()) return packet.status();
    return absl::Status(static_cast<absl::StatusCode>(packet->header.code), packet->message);
  }
  // Waits for the listener to close the connection.
  bool Dropped() const { return absl::IsUnavailable(Answer()); }

 private:
  const Descriptor socket_;
};

class ListenerTest : public ShmTest {
 protected:
  static std::unique_ptr<DescriptorListener> Start(DescriptorHandler handler,
                                                   const DescriptorListenerOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<DescriptorListener>> listener =
        DescriptorListener::Start(options, std::move(handler));
    EXPECT_TRUE(listener.ok()) << listener.status();
    return *std::move(listener);
  }
  static absl::Status Ask(const std::string& name) { return Exchange(name, "well?", {}, kPatience).status(); }
};

TEST_F(ListenerTest, DescriptorsAndMessagesGoBothWays) {
  const auto listener = Start(Echo);
  const auto segment = Segment::Create({.name = "listener_test", .bytes = 1});
  ASSERT_TRUE(segment.ok());
  (*segment)->data()[0] = std::byte{5};
  absl::StatusOr<DescriptorMessage> answer =
      Exchange(listener->name(), "here", {(*segment)->descriptor()->get()}, kPatience);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->message, "here");
  ASSERT_EQ(answer->descriptors.size(), 1u);
  const auto mapped = MappedSegment::Map(std::move(answer->descriptors[0]), {.bytes_min = 1, .bytes_max = 1 << 20});
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ((*mapped)->data()[0], std::byte{5});
}

TEST_F(ListenerTest, ManyDescriptorsComeInOrderInSeveralPackets) {
  const std::array<SharedDescriptor, 2> kinds = {
      std::make_shared<const Descriptor>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      std::make_shared<const Descriptor>(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0))};
  const auto type_of = [](const Descriptor& descriptor) {
    int type = 0;
    socklen_t bytes = sizeof(type);
    EXPECT_EQ(::getsockopt(descriptor.get(), SOL_SOCKET, SO_TYPE, &type, &bytes), 0);
    return type;
  };
  const auto listener = Start([&](DescriptorMessage request) -> absl::StatusOr<DescriptorReply> {
    DescriptorReply reply{.message = "all", .descriptors = {}};
    const size_t count = std::stoul(request.message);
    for (size_t i = 0; i < count; ++i) reply.descriptors.push_back(kinds[i % 3 == 0]);
    return reply;
  });
  for (const size_t count : {0, 1, 128, 129, 256, 300}) {
    const absl::StatusOr<DescriptorMessage> answer = Exchange(listener->name(), std::to_string(count), {}, kPatience);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->message, "all");
    ASSERT_EQ(answer->descriptors.size(), count);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(type_of(answer->descriptors[i]), i % 3 == 0 ? SOCK_DGRAM : SOCK_STREAM) << i;
    }
  }
  EXPECT_EQ(Exchange(listener->name(), "1025", {}, kPatience).status(),
            absl::InternalError("the reply has 1025 descriptors; allowed are 1024"));
}

TEST_F(ListenerTest, MessagesHaveALimit) {
  const auto listener = Start(Echo);
  const std::string longest(kMessageBytesMax, 'x');
  const absl::StatusOr<DescriptorMessage> answer = Exchange(listener->name(), longest, {}, kPatience);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->message, longest);
  EXPECT_TRUE(absl::IsInvalidArgument(Exchange(listener->name(), longest + "x", {}, kPatience).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Exchange(listener->name(), "", std::vector<int>(17, 0), kPatience).status()));

  const auto talker = Start([&](DescriptorMessage) { return DescriptorReply{longest + "x", {}}; });
  EXPECT_EQ(Ask(talker->name()), absl::InternalError("the reply has 65537 bytes; allowed are 65536"));
}

TEST_F(ListenerTest, TheHandlersErrorReachesThePeer) {
  const auto listener = Start([](DescriptorMessage request) -> absl::StatusOr<DescriptorReply> {
    return absl::FailedPreconditionError("no shard for " + request.message);
  });
  EXPECT_EQ(Ask(listener->name()), absl::FailedPreconditionError("no shard for well?"));
}

TEST_F(ListenerTest, ANameHasOneListener) {
  const auto listener = Start(Echo);
  EXPECT_THAT(listener->name(), ::testing::MatchesRegex("slackline-[0-9a-f]+"));
  EXPECT_EQ(listener->name().size(), 10u + 32u);
  EXPECT_NE(Start(Echo)->name(), listener->name());
  EXPECT_TRUE(absl::IsAlreadyExists(DescriptorListener::Start({.name = listener->name()}, Echo).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(DescriptorListener::Start({.name = std::string(108, 'x')}, Echo).status()));
}

TEST_F(ListenerTest, WhereNobodyListensIsUnavailable) {
  const std::string name = Start(Echo)->name();
  const absl::Status status = Ask(name);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(name));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask("")));
}

TEST_F(ListenerTest, SilentPeersHoldNobody) {
  const auto listener = Start(Echo, {.name = "", .peer_timeout = absl::Hours(1)});
  const RawPeer first(listener->name());
  const RawPeer second(listener->name());
  EXPECT_TRUE(Ask(listener->name()).ok());
  // The listener ends although they are still there.
}

TEST_F(ListenerTest, SilentPeersAreDroppedAfterTheirTime) {
  const auto listener = Start(Echo, {.name = "", .peer_timeout = absl::Milliseconds(50)});
  EXPECT_TRUE(RawPeer(listener->name()).Dropped());
}

absl::Duration ProcessorTime() {
  rusage used{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &used), 0);
  return absl::DurationFromTimeval(used.ru_utime) + absl::DurationFromTimeval(used.ru_stime);
}

TEST_F(ListenerTest, PeersAboveTheLimitWaitUntilOneIsDone) {
  const auto listener = Start(Echo, {.name = "", .peer_timeout = absl::Milliseconds(400), .connections_max = 1});
  const RawPeer silent(listener->name());
  const absl::Duration before = ProcessorTime();
  EXPECT_TRUE(Ask(listener->name()).ok());
  EXPECT_LT(ProcessorTime() - before, absl::Milliseconds(100)) << "the listener spins";
  EXPECT_TRUE(silent.Dropped()) << "it was, before the other was heard";
}

TEST_F(ListenerTest, PeersThatGoAreForgotten) {
  const auto listener = Start(Echo, {.name = "", .peer_timeout = absl::Hours(1), .connections_max = 1});
  for (int i = 0; i < 10; ++i) {
    const RawPeer peer(listener->name());
    if (i % 2 == 0) {
      EXPECT_TRUE(SendPacket(peer.socket(), {}, "well?", {}).ok());
    }
  }
  EXPECT_TRUE(Ask(listener->name()).ok());
}

// What SendPacket() puts on the wire.
std::string WireBytes(const std::string& message) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor from(ends[0]), to(ends[1]);
  EXPECT_TRUE(SendPacket(from.get(), {}, message, {}).ok());
  std::string bytes(2 * kMessageBytesMax, '\0');
  bytes.resize(static_cast<size_t>(::recv(to.get(), bytes.data(), bytes.size(), 0)));
  return bytes;
}

TEST_F(ListenerTest, APacketThatIsTooLongIsRefused) {
  const auto listener = Start(Echo);
  const std::string packet = WireBytes(std::string(kMessageBytesMax, 'x')) + "x";
  const RawPeer peer(listener->name());
  ASSERT_EQ(::send(peer.socket(), packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
  EXPECT_EQ(peer.Answer(), absl::InvalidArgumentError("the packet is too long; allowed are 65536 bytes"));
}

TEST_F(ListenerTest, GarbageEndsItsOwnConnectionOnly) {
  const auto listener = Start(Echo);
  for (const size_t bytes : {1, 11, 12, 13, 5000, 70000, 200000}) {
    const RawPeer peer(listener->name());
    const std::string garbage(bytes, 'g');
    ASSERT_EQ(::send(peer.socket(), garbage.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    const absl::Status status = peer.Answer();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(peer.Dropped());
  }
  const RawPeer empty(listener->name());
  EXPECT_EQ(::send(empty.socket(), "", 0, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(empty.Dropped());
  EXPECT_TRUE(Ask(listener->name()).ok());
}

TEST_F(ListenerTest, TooManyDescriptorsAreRefusedAndClosed) {
  const auto listener = Start(Echo);
  for (const size_t count : {kRequestDescriptorsMax + 1, kPacketDescriptorsMax}) {
    const RawPeer peer(listener->name());
    ASSERT_TRUE(SendPacket(peer.socket(), {}, "", std::vector<int>(count, peer.socket())).ok());
    EXPECT_EQ(peer.Answer(), absl::InvalidArgumentError("more than 16 descriptors came; allowed are 16"));
  }
}

// Changes the effective user of the calling thread only.
class OtherUser {
 public:
  OtherUser() { EXPECT_EQ(::syscall(SYS_setresuid, -1, 65534, -1), 0); }
  ~OtherUser() { EXPECT_EQ(::syscall(SYS_setresuid, -1, 0, -1), 0); }
};

TEST_F(ListenerTest, OtherUsersAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto listener = Start([](DescriptorMessage) -> absl::StatusOr<DescriptorReply> {
    ADD_FAILURE() << "the handler was asked";
    return DescriptorReply{};
  });
  const OtherUser user;
  const absl::Status theirs = Ask(listener->name());
  EXPECT_TRUE(absl::IsPermissionDenied(theirs)) << theirs;
  EXPECT_THAT(theirs.message(), HasSubstr("runs as user 0; memory is shared with processes of user 65534 only"));

  const RawPeer peer(listener->name());  // does not look whom it asks
  ASSERT_TRUE(SendPacket(peer.socket(), {}, "well?", {peer.socket()}).ok());
  const absl::Status ours = peer.Answer();
  EXPECT_TRUE(absl::IsPermissionDenied(ours)) << ours;
  EXPECT_THAT(ours.message(), HasSubstr("runs as user 65534; memory is shared with processes of user 0 only"));
}

// Lets the process open so many further files.
class FileLimit {
 public:
  explicit FileLimit(size_t further) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const auto next = static_cast<rlim_t>(Duplicate(STDIN_FILENO).get());
    const rlimit low{.rlim_cur = next + further, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~FileLimit() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

TEST_F(ListenerTest, AProcessAtItsLimitOfOpenFilesIsToldSo) {
  const auto shared = std::make_shared<const Descriptor>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto listener = Start([&](DescriptorMessage) {
    return DescriptorReply{"", std::vector<SharedDescriptor>(100, shared)};
  });
  {
    const FileLimit limit(20);
    const absl::Status status = Ask(listener->name());
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("limit of open files"));
  }
  EXPECT_TRUE(Ask(listener->name()).ok());
}

TEST_F(ListenerTest, WhoCannotAcceptForNowDoesSoLater) {
  const auto listener = Start(Echo);
  const RawPeer before(listener->name());
  const RawPeer again(listener->name());
  const RawPeer last(listener->name());
  ASSERT_TRUE(last.Ask().ok());
  ASSERT_TRUE(last.Dropped()) << "all three were accepted, and its descriptor is free again";
  const RawPeer late;
  {
    const FileLimit limit(0);
    late.Connect(listener->name());
    // An answer tells that the listener has seen `late`; the next one that it could not accept it.
    ASSERT_TRUE(before.Ask().ok());
    ASSERT_TRUE(again.Ask().ok());
  }
  EXPECT_TRUE(late.Ask().ok());
}

// A listener that does what the test says, to the first who connects.
class FakeListener {
 public:
  FakeListener() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), name_(*RandomAbstractName()) {
    const absl::StatusOr<AbstractAddress> address = MakeAbstractAddress(name_);
    EXPECT_EQ(::bind(socket_.get(), address->get(), address->bytes), 0);
    EXPECT_EQ(::listen(socket_.get(), 0), 0);
  }

  const std::string& name() const { return name_; }
  Descriptor Accept() const { return Descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

 private:
  const Descriptor socket_;
  const std::string name_;
};

TEST_F(ListenerTest, TheTimeOfAnExchangeIsLimited) {
  const FakeListener nobody;
  // The first gets no answer. The second and the third may not even connect.
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = Exchange(nobody.name(), "", {}, absl::Milliseconds(20)).status();
    EXPECT_EQ(status, absl::DeadlineExceededError("no answer from " + nobody.name() + " within 20ms"));
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(Exchange(nobody.name(), "", {}, absl::ZeroDuration()).status()));
}

TEST_F(ListenerTest, AnswersThatLieAreRefused) {
  struct Lie {
    std::vector<PacketHeader> packets;  // each with one descriptor, but for the last
    absl::StatusCode code;
  };
  const std::vector<Lie> lies = {
      {{{0, 5000}, {}}, absl::StatusCode::kInvalidArgument},       // more than any reply has
      {{{0, 5}, {0, 3}, {}}, absl::StatusCode::kInvalidArgument},  // 5 were left, then only 4
      {{{0, 5}, {0, 5}}, absl::StatusCode::kInvalidArgument},      // a packet without any
      {{{0, 5}}, absl::StatusCode::kUnavailable},                  // the end comes too early
      {{{77, 0}}, absl::StatusCode::kUnknown},                     // a code that there is not
      {{}, absl::StatusCode::kUnavailable},
  };
  for (const Lie& lie : lies) {
    const FakeListener liar;
    std::thread thread([&] {
      const Descriptor peer = liar.Accept();
      EXPECT_TRUE(ReceivePacket(peer.get(), 0).ok());
      for (const PacketHeader& packet : lie.packets) {
        const bool last = &packet == &lie.packets.back();
        static_cast<void>(SendPacket(peer.get(), packet, "", last ? std::vector<int>() : std::vector<int>{peer.get()}));
      }
    });
    const absl::Status status = Ask(liar.name());
    EXPECT_EQ(status.code(), lie.code) << status;
    thread.join();
  }
}

}  // namespace
}  // namespace slackline::shm::shm_listener_test
