// Peers that misuse shared memory: each is told what was wrong, nothing changes, and a good worker goes on.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <grpcpp/generic/generic_stub.h>
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/raw_stream.h"

namespace slackline::hostile_test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kElements = 9001;

// Shard 0 has kElements elements, shard 1 one. Worker 1 is good, worker 2 is not.
class HostileTest : public testing::Test {
 protected:
  HostileTest() {
    good_.Seed(std::vector<float>(cluster_.map().elements, 1000));
    good_.Pull();
  }

  // The good worker makes a step of 2, which costs 1.
  void ExpectGoodStep() {
    good_.Step(std::vector<float>(cluster_.map().elements, 2));
    weight_ -= 1;
    EXPECT_THAT(good_.parameters(), Each(weight_));
  }

  absl::StatusOr<Granted> Ask(uint32_t number = 2) { return AskForSegments(cluster_, number, segment_.get()); }
  // Worker 2 with shared memory.
  std::unique_ptr<RawStream> OpenBad() {
    auto stream = std::make_unique<RawStream>(cluster_, 2, Ask()->offer.token());
    EXPECT_TRUE(stream->welcome().shared_memory());
    return stream;
  }

  void ExpectRefused(const wire::WorkerItem& item, const std::string& words) {
    SCOPED_TRACE(words);
    const auto stream = OpenBad();
    ASSERT_TRUE(stream->Write(item));
    const wire::ServerItem answer = stream->ReadAnswer();
    EXPECT_TRUE(answer.has_refused()) << answer.DebugString();
    EXPECT_THAT(answer.refused().message(), HasSubstr(words));
    ExpectGoodStep();
  }

  // What the descriptor socket says to this.
  absl::Status AskRaw(const std::string& message, const std::vector<int>& descriptors) {
    return shm::Exchange(cluster_.map().servers[0].memory_socket, message, descriptors, absl::Seconds(20)).status();
  }
  std::string Request(uint64_t bytes) {
    wire::SegmentRequest request;
    request.set_job(Cluster::kJob.value());
    request.set_worker(2);
    request.set_incarnation(102);
    request.set_bytes(bytes);
    return request.SerializeAsString();
  }

  // Few enough that a flood meets the limit before its first grants expire.
  static constexpr uint32_t kStreamsMax = 32;
  Cluster cluster_{ClusterShape{.change = [](job::Job& job) { job.mutable_limits()->set_streams_max(kStreamsMax); }}};
  TestTrainer good_{cluster_.ClientOptions(1), cluster_.map()};
  float weight_ = 1000;
  std::unique_ptr<shm::Segment> segment_ = *shm::Segment::Create({.name = "slackline-bad", .bytes = kElements * 4});
};

TEST_F(HostileTest, ChunksThatDoNotLieInTheSegmentAreRefused) {
  const uint64_t bytes = segment_->bytes();
  ExpectRefused(SharedPushItem(0, 1, kElements, bytes), "it must lie inside, at a multiple of 4");
  ExpectRefused(SharedPushItem(0, 1, kElements, bytes - kElements * 4 + 4), "it must lie inside");
  ExpectRefused(SharedPushItem(0, 1, kElements, 2), "at a multiple of 4");
  ExpectRefused(SharedPushItem(0, 1, kElements, UINT64_MAX - 3), "it must lie inside");
  ExpectRefused(SharedPushItem(0, 1, uint64_t{1} << 62, 0), "it must lie inside");
  ExpectRefused(SharedPushItem(0, 1, UINT64_MAX, 4), "it must lie inside");
  ExpectRefused(SharedPushItem(0, 1, kElements - 1, 0), "push has 9000 elements; the shard has 9001");
  ExpectRefused(SharedPushItem(7, 1, kElements, 0), "shard 7 is not here");
  wire::WorkerItem item = SharedPushItem(0, 1, kElements, 0);
  item.mutable_push()->set_encoding(wire::ENCODING_BF16);
  ExpectRefused(item, "allowed is 1 (fp32)");
  item = SharedPushItem(0, 1, kElements, 0);
  item.mutable_push()->clear_commit();
  item.mutable_push()->set_offset(4);
  ExpectRefused(item, "not begun at element 0");
}

TEST_F(HostileTest, PayloadBesideASegmentIsRefused) {
  const auto stream = OpenBad();
  wire::WorkerFrame frame = RawStream::Frame();
  *frame.add_items() = SharedPushItem(0, 1, kElements, 0);
  frame.mutable_items(0)->set_payload_bytes(4);
  frame.set_payload("abcd");
  ASSERT_TRUE(stream->Write(frame));
  EXPECT_THAT(stream->ReadAnswer().refused().message(), HasSubstr("has 4 bytes of payload; allowed are 0"));
  ExpectGoodStep();
}

TEST_F(HostileTest, ValuesInTheSegmentMustBeFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(segment_->data() + 8000 * sizeof(float), &nan, sizeof(nan));
  ExpectRefused(SharedPushItem(0, 1, kElements, 0), "not finite");
}

TEST_F(HostileTest, PushInASegmentThatWasNotSharedIsRefused) {
  RawStream stream(cluster_, 2);
  EXPECT_FALSE(stream.welcome().shared_memory());
  stream.Write(SharedPushItem(0, 1, kElements, 0));
  EXPECT_THAT(stream.ReadAnswer().refused().message(), HasSubstr("on a stream that has none"));
  ExpectGoodStep();
}

TEST_F(HostileTest, WindowHoldsInSharedMemoryToo) {
  ClusterShape shape;
  shape.mode = job::Consistency::BSP;
  Cluster cluster(shape);
  TestTrainer good(cluster.ClientOptions(1), cluster.map());
  good.Seed(std::vector<float>(cluster.map().elements, 10));
  good.Pull();
  RawStream stream(cluster, 2, AskForSegments(cluster, 2, segment_.get())->offer.token());
  EXPECT_EQ(stream.welcome().window(), 1);  // although it asked for 64
  stream.Write(SharedPushItem(0, 1, kElements, 0));
  stream.Write(SharedPushItem(0, 2, kElements, 0));
  const wire::ServerItem answer = stream.ReadAnswer();
  EXPECT_EQ(answer.refused().code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(answer.refused().message(), HasSubstr("the window allows 1"));
  stream.Write(SharedPushItem(1, 1, 1, 0));
  good.Step(std::vector<float>(cluster.map().elements, 2));  // its step of bsp: the mean with zeros
  EXPECT_THAT(good.parameters(), Each(9.5F));
}

// --- Tokens -----------------------------------------------------------------------------------------------------

TEST_F(HostileTest, TokenIsGoodForItsWorkerOnly) {
  const absl::StatusOr<Granted> granted = Ask(/*number=*/1);
  ASSERT_TRUE(granted.ok()) << granted.status();
  RawStream stream(cluster_, 2, granted->offer.token());
  EXPECT_TRUE(stream.first().has_welcome());
  EXPECT_FALSE(stream.welcome().shared_memory());
  ExpectGoodStep();
}

TEST_F(HostileTest, TokenIsGoodOnce) {
  const absl::StatusOr<Granted> granted = Ask();
  ASSERT_TRUE(granted.ok()) << granted.status();
  RawStream first(cluster_, 2, granted->offer.token());
  EXPECT_TRUE(first.welcome().shared_memory());
  RawStream second(cluster_, 2, granted->offer.token());
  EXPECT_FALSE(second.welcome().shared_memory());
  for (const std::string& token : {std::string("x"), std::string(16, '\0'), std::string(1 << 16, 'x')}) {
    EXPECT_FALSE(RawStream(cluster_, 2, token).welcome().shared_memory());
  }
  ExpectGoodStep();
}

TEST_F(HostileTest, ThoseWhoAskAndNeverComeAreLimitedAndForgotten) {
  absl::Status refused;
  for (int count = 0; count < 100 && refused.ok(); ++count) refused = Ask().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("allowed are 32"));
  ExpectGoodStep();
  EXPECT_TRUE(Eventually([&] { return Ask().ok(); }));  // after 16 T
}

// --- Releases ---------------------------------------------------------------------------------------------------

TEST_F(HostileTest, ReleaseOfWhatWasNeverLentChangesNothing) {
  const auto stream = OpenBad();
  wire::WorkerItem item = ReleaseItem(0, 1);
  item.mutable_release()->add_shards(7);
  for (int count = 0; count < 100; ++count) ASSERT_TRUE(stream->Write(item));
  stream->Write(PullItem(0, 1, 0));
  const wire::ServerItem answer = stream->ReadAnswer();
  EXPECT_TRUE(answer.has_pull()) << answer.DebugString();
  EXPECT_TRUE(answer.pull().has_segment_offset());
  for (int count = 0; count < 2; ++count) stream->Write(ReleaseItem(0, 1));
  RawStream reader(cluster_, 0);  // without shared memory
  reader.Write(item);
  ExpectGoodStep();
}

// --- Requests ---------------------------------------------------------------------------------------------------

TEST_F(HostileTest, RequestsThatMakeNoSenseAreRefused) {
  const int good = segment_->descriptor()->get();
  EXPECT_THAT(std::string(AskRaw("\xff\xff garbage", {}).message()), HasSubstr("not a SegmentRequest"));
  EXPECT_THAT(std::string(AskRaw(Request(4), {good, good}).message()), HasSubstr("2 descriptors came"));
  wire::SegmentRequest request;
  request.ParseFromString(Request(4));
  request.set_job(1);
  EXPECT_EQ(AskRaw(request.SerializeAsString(), {good}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(AskRaw(Request(segment_->bytes() + 1), {good}).message()), HasSubstr("allowed are"));
  EXPECT_THAT(std::string(AskRaw(Request(UINT64_MAX), {good}).message()), HasSubstr("allowed are"));
  ExpectGoodStep();
}

TEST_F(HostileTest, RequestThatNamesNoBytesIsTakenOrRefusedAndTheServerLives) {
  EXPECT_EQ(AskRaw(Request(0), {segment_->descriptor()->get()}), absl::OkStatus());
  const shm::Descriptor empty(::memfd_create("slackline-empty", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(AskRaw(Request(0), {empty.get()}).code(), absl::StatusCode::kInvalidArgument);
  ExpectGoodStep();
}

TEST_F(HostileTest, SegmentThatCanShrinkOrIsNoneIsRefused) {
  const shm::Descriptor loose(::memfd_create("slackline-loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(loose.get(), 1 << 20), 0);
  EXPECT_THAT(std::string(AskRaw(Request(1 << 20), {loose.get()}).message()), HasSubstr("F_SEAL_SHRINK"));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const shm::Descriptor read(ends[0]), write(ends[1]);
  EXPECT_THAT(std::string(AskRaw(Request(4), {read.get()}).message()), HasSubstr("not one of shared memory"));
  ExpectGoodStep();
}

// --- Fuzz -------------------------------------------------------------------------------------------------------

// A valid frame with several items, of which some are pushes with payload.
std::string ValidFrame(std::mt19937& random) {
  wire::WorkerFrame frame = RawStream::Frame();
  for (uint64_t item = 0; item < 1 + random() % 6; ++item) {
    switch (random() % 4) {
      case 0:
        *frame.add_items() = PullItem(random() % 3, random() % 5, random() % 3);
        break;
      case 1:
        *frame.add_items() = ReleaseItem(random() % 3, random() % 5);
        break;
      case 2:
        *frame.add_items() = SharedPushItem(random() % 3, random() % 4, random() % (2 * kElements), random() % 40000);
        break;
      default: {
        wire::WorkerItem& push = *frame.add_items();
        push = SharedPushItem(random() % 2, random() % 4, random() % 2000, 0);
        push.mutable_push()->clear_segment_offset();
        if (random() % 2 == 0) push.mutable_push()->clear_commit();
        push.set_payload_bytes(static_cast<uint32_t>(push.push().elements() * 4));
        frame.mutable_payload()->append(push.payload_bytes(), '\0');
      }
    }
  }
  return frame.SerializeAsString();
}

// Mostly nothing, so that streams get far; else a few bytes are changed, lost or doubled.
void Mutate(std::string& bytes, std::mt19937& random) {
  for (uint64_t count = random() % 4 == 0 ? 1 + random() % 3 : 0; count > 0 && !bytes.empty(); --count) {
    // Mostly in front, where the small fields are.
    const size_t at = random() % std::min<size_t>(bytes.size(), random() % 2 == 0 ? 64 : bytes.size());
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, 1 + random() % 16));
        break;
      default:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
  }
}

// One call that carries bytes as they are.
class ByteStream {
 public:
  explicit ByteStream(const std::string& address)
      : stub_(rpc::DataChannel(address)), context_(rpc::ContextWithTimeout(absl::Seconds(30))) {
    call_ = stub_.PrepareCall(context_.get(), "/slackline.wire.ParameterServer/Exchange", &queue_);
    call_->StartCall(nullptr);
    Await();
  }
  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Await();
  }
  // Reads to the end, so that all that was written has been worked on.
  grpc::Status Finish() {
    call_->WritesDone(nullptr);
    Await();
    grpc::ByteBuffer bytes;
    do {
      call_->Read(&bytes, nullptr);
    } while (Await());
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Await();
    return status;
  }

 private:
  bool Await() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// Worker 2 sends nothing but zeros, so that whatever of it is taken changes no weight.
TEST_F(HostileTest, MutatedFramesStopNothingAndChangeNothing) {
  std::mt19937 random(PrintedSeed());
  std::memset(segment_->data(), 0, segment_->bytes());
  std::map<grpc::StatusCode, int> ends;
  for (int round = 0; round < 300; ++round) {
    wire::WorkerFrame hello = RawStream::Frame();
    *hello.add_items() = RawStream::HelloItem(2, Ask()->offer.token());
    ByteStream stream(cluster_.map().servers[0].address);
    bool open = stream.Write(hello.SerializeAsString());
    for (int count = 0; count < 10 && open; ++count) {
      std::string bytes = ValidFrame(random);
      Mutate(bytes, random);
      open = stream.Write(bytes);
    }
    const grpc::Status status = stream.Finish();
    ++ends[status.error_code()];
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
    if (round % 10 == 0) ExpectGoodStep();
  }
  ExpectGoodStep();
  // All sorts were there: streams that went on to their end, ones that were ended, and items that were refused.
  EXPECT_GT(ends[grpc::StatusCode::OK], 0);
  EXPECT_GT(ends[grpc::StatusCode::INVALID_ARGUMENT], 0);
  EXPECT_GT(cluster_.metrics().counter("slackline_ps_pushes_refused_total", "", {{"code", "INVALID_ARGUMENT"}}).value(),
            100);
}

}  // namespace
}  // namespace slackline::hostile_test
