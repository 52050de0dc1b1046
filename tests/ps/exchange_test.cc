// A real server process's service over loopback, against clients that speak plain protobuf: every kind of wrong
// message is refused with its status, changes nothing, and the next good push and pull work.
#include "ps/service/exchange.h"

#include <limits>
#include <memory>
#include <random>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include "common/codec/block_decoder.h"
#include "common/rpc/channel.h"
#include "common/wire_encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/service/awaited.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps {
namespace {

using testing::HasSubstr;

constexpr uint64_t kJob = 77;
constexpr uint64_t kGeneration = 5;
constexpr uint64_t kElements = 1500;  // a shard: one whole chunk and a shorter one
constexpr uint64_t kChunkElements = 1024;

// A stream with the frames of a worker. Every wait has the call's deadline.
class TestWorker {
 public:
  TestWorker(const std::string& address, uint32_t worker, uint64_t incarnation, wire::Role role = wire::ROLE_WORKER)
      : TestWorker(rpc::DataChannel(address), worker, incarnation, role) {}
  TestWorker(const std::shared_ptr<grpc::Channel>& channel, uint32_t worker, uint64_t incarnation,
             wire::Role role = wire::ROLE_WORKER)
      : stub_(wire::ParameterServer::NewStub(channel)),
        context_(rpc::ContextWithTimeout(absl::Seconds(20))),
        stream_(stub_->Exchange(context_.get())) {
    hello_frame_ = Frame();
    hello_frame_.add_items();
    hello().set_role(role);
    hello().set_worker(worker);
    hello().set_incarnation(incarnation);
    hello().set_pull_encoding(wire::ENCODING_FP32);
    hello().set_window(1);
  }
  ~TestWorker() { context_->TryCancel(); }

  static wire::WorkerFrame Frame() {
    wire::WorkerFrame frame;
    frame.set_job(kJob);
    frame.set_generation(kGeneration);
    return frame;
  }

  wire::WorkerFrame& hello_frame() { return hello_frame_; }
  wire::Hello& hello() { return *hello_frame_.mutable_items(0)->mutable_hello(); }
  bool Write(const wire::WorkerFrame& frame) { return stream_->Write(frame); }
  // The next item; an empty one when the stream has ended.
  wire::ServerItem Read() {
    while (next_ == received_.items_size()) {
      next_ = 0;
      payload_begin_ = 0;
      payload_size_ = 0;
      if (!stream_->Read(&received_)) {
        received_.Clear();
        return wire::ServerItem();
      }
    }
    payload_begin_ += payload_size_;
    payload_size_ = received_.items(next_).payload_bytes();
    return received_.items(next_++);
  }
  // Of the item read last.
  std::string payload() const { return received_.payload().substr(payload_begin_, payload_size_); }
  grpc::Status Finish() { return stream_->Finish(); }

  wire::Welcome SayHello() {
    Write(hello_frame_);
    return Read().welcome();
  }

  void SendPush(uint32_t shard, uint64_t sequence, float value, bool seed = false) {
    for (uint64_t begin = 0; begin < kElements; begin += kChunkElements) {
      const uint64_t size = std::min(kChunkElements, kElements - begin);
      Write(PushFrame(shard, sequence, begin, Floats(size, value), begin + size == kElements, seed));
    }
  }

  static wire::WorkerFrame PushFrame(uint32_t shard, uint64_t sequence, uint64_t offset, std::string payload,
                                     bool commit, bool seed = false) {
    wire::WorkerFrame frame = Frame();
    wire::WorkerItem& item = *frame.add_items();
    wire::PushChunk& chunk = *item.mutable_push();
    chunk.set_shard(shard);
    chunk.set_sequence(sequence);
    chunk.set_offset(offset);
    chunk.set_seed(seed);
    if (commit) {
      chunk.mutable_commit()->mutable_base()->set_lineage(1);
      chunk.mutable_commit()->set_samples(1);
    }
    chunk.set_elements(payload.size() / sizeof(float));
    item.set_payload_bytes(static_cast<uint32_t>(payload.size()));
    frame.set_payload(std::move(payload));
    return frame;
  }

  static wire::WorkerFrame PullFrame(uint64_t id, uint64_t clock) {
    wire::WorkerFrame frame = Frame();
    wire::Pull& pull = *frame.add_items()->mutable_pull();
    pull.set_id(id);
    pull.set_clock(clock);
    pull.add_shards()->set_shard(0);
    pull.add_shards()->set_shard(1);
    return frame;
  }

  // Pulls both shards: their bytes one after the other.
  std::string Pull(uint64_t clock) {
    Write(PullFrame(++pull_, clock));
    std::string bytes[2];
    for (int done = 0; done < 2;) {
      const wire::ServerItem item = Read();
      if (item.has_pull()) bytes[item.pull().shard()] += payload();
      if (item.has_pull_done() || item.pull().has_done()) ++done;
      if (item.body_case() == wire::ServerItem::BODY_NOT_SET) break;
    }
    return bytes[0] + bytes[1];
  }

 private:
  const std::unique_ptr<wire::ParameterServer::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  const std::unique_ptr<grpc::ClientReaderWriter<wire::WorkerFrame, wire::ServerFrame>> stream_;
  wire::WorkerFrame hello_frame_;
  wire::ServerFrame received_;
  int next_ = 0;  // item of received_
  size_t payload_begin_ = 0;
  size_t payload_size_ = 0;
  uint64_t pull_ = 0;
};

class ExchangeTest : public testing::Test {
 protected:
  ExchangeTest() {
    ExchangeOptions options;
    options.job = PlainJob();
    options.job.mutable_limits()->set_streams_max(12);  // with those that are just ending
    options.timeouts.heartbeat = absl::Milliseconds(50);
    options.on_stop = [this](const std::string& reason) { stopped_.Give(reason); };
    exchange_ = *Exchange::Start(options, metrics_, time_);
    address_ = "127.0.0.1:" + std::to_string(exchange_->port());
    control_ = wire::ParameterServerControl::NewStub(rpc::ControlChannel(address_));
  }

  void SetUp() override {
    ASSERT_TRUE(exchange_->SetIdentity({JobId(kJob), ServerId(1)}).ok());
    ASSERT_TRUE(Install(InstallRequest()).ok());
    ASSERT_TRUE(SetMembers(1, {1, 2}).ok());
    alice_ = std::make_unique<TestWorker>(address_, 1, 101);
    ASSERT_EQ(alice_->SayHello().shards_size(), 2);
    for (const uint32_t shard : {0, 1}) {
      alice_->SendPush(shard, 0, 10, /*seed=*/true);
      ASSERT_EQ(alice_->Read().answer().outcome(), wire::OUTCOME_APPLIED);
    }
  }

  static wire::InstallShardsRequest InstallRequest() {
    wire::InstallShardsRequest request;
    request.set_job(kJob);
    request.set_generation(kGeneration);
    request.set_server(1);
    request.set_trained_elements(2 * kElements);
    request.set_samples_per_epoch(100);
    for (const uint32_t shard : {0, 1}) {
      wire::ShardSpec& spec = *request.add_shards();
      spec.set_shard(shard);
      spec.set_begin(shard * kElements);
      spec.set_end((shard + 1) * kElements);
      spec.set_server(1);
    }
    return request;
  }

  grpc::Status Install(const wire::InstallShardsRequest& request) {
    wire::InstallShardsReply reply;
    return control_->InstallShards(rpc::ContextWithTimeout(absl::Seconds(10)).get(), request, &reply);
  }

  grpc::Status SetMembers(uint64_t epoch, const std::vector<uint32_t>& workers, uint64_t generation = kGeneration) {
    wire::SetMembersRequest request;
    request.set_job(kJob);
    request.set_generation(generation);
    request.set_epoch(epoch);
    for (const uint32_t worker : workers) {
      request.add_members()->set_worker(worker);
      request.mutable_members()->rbegin()->set_incarnation(100 + worker);
    }
    wire::SetMembersReply reply;
    return control_->SetMembers(rpc::ContextWithTimeout(absl::Seconds(10)).get(), request, &reply);
  }

  std::string Weights() {
    TestWorker reader(address_, 0, 0, wire::ROLE_READER);
    EXPECT_EQ(reader.SayHello().shards_size(), 2);
    return reader.Pull(0);
  }

  // A push of 1 to both shards and a pull by the same worker.
  void ExpectGoodStep(TestWorker& worker, uint64_t sequence, float weight) {
    for (const uint32_t shard : {0, 1}) worker.SendPush(shard, sequence, 1);
    for (int answers = 0; answers < 2; ++answers) {
      const wire::ServerItem item = worker.Read();
      ASSERT_EQ(item.answer().outcome(), wire::OUTCOME_APPLIED) << item.DebugString();
    }
    EXPECT_EQ(worker.Pull(sequence), Floats(2 * kElements, weight));
  }

  // The frame is refused on alice's stream, nothing changes, and the stream goes on.
  void ExpectRefused(const wire::WorkerFrame& frame, grpc::StatusCode code, const std::string& words) {
    SCOPED_TRACE(words);
    const std::string before = Weights();
    ASSERT_TRUE(alice_->Write(frame));
    const wire::ServerItem answer = alice_->Read();
    ASSERT_TRUE(answer.has_refused()) << answer.DebugString();
    EXPECT_EQ(answer.refused().code(), code) << answer.DebugString();
    EXPECT_THAT(answer.refused().message(), HasSubstr(words));
    EXPECT_EQ(Weights(), before);
    ++step_;
    ExpectGoodStep(*alice_, step_, 10 - static_cast<float>(step_));
  }

  // A stream on which this comes first ends with the status, and nothing changes.
  void ExpectEnds(const std::function<void(TestWorker&)>& speak, grpc::StatusCode code, const std::string& words) {
    SCOPED_TRACE(words);
    const std::string before = Weights();
    TestWorker worker(address_, 2, 102);
    speak(worker);
    while (worker.Read().body_case() != wire::ServerItem::BODY_NOT_SET) {
    }
    const grpc::Status status = worker.Finish();
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(words));
    EXPECT_EQ(Weights(), before);
    ++step_;
    ExpectGoodStep(*alice_, step_, 10 - static_cast<float>(step_));
  }

  Metrics metrics_;
  SteadyTime time_;
  Awaited<std::string> stopped_;
  std::unique_ptr<Exchange> exchange_;
  std::string address_;
  std::unique_ptr<wire::ParameterServerControl::Stub> control_;
  std::unique_ptr<TestWorker> alice_;
  uint64_t step_ = 0;
};

TEST_F(ExchangeTest, PushedGradientsComeBackAsWeights) {
  EXPECT_EQ(Weights(), Floats(2 * kElements, 10));
  for (uint64_t step = 1; step <= 20; ++step) ExpectGoodStep(*alice_, step, 10 - static_cast<float>(step));
}

TEST_F(ExchangeTest, CurrentWeightsAreNotSentAgain) {
  wire::WorkerFrame pull = TestWorker::PullFrame(1, 0);
  for (wire::ShardVersion& shard : *pull.mutable_items(0)->mutable_pull()->mutable_shards())
    shard.mutable_known()->set_lineage(1);
  alice_->Write(pull);
  for (int shard = 0; shard < 2; ++shard) EXPECT_TRUE(alice_->Read().pull_done().unchanged());
}

TEST_F(ExchangeTest, RepeatedPushOnANewStreamChangesNothing) {
  ExpectGoodStep(*alice_, 1, 9);
  TestWorker again(address_, 1, 101);
  const wire::Welcome welcome = again.SayHello();
  ASSERT_EQ(welcome.shards_size(), 2);
  EXPECT_EQ(welcome.shards(0).last_answered(), 1);
  EXPECT_EQ(alice_->Finish().error_code(), grpc::StatusCode::ABORTED);  // gave way
  for (const uint32_t shard : {0, 1}) again.SendPush(shard, 1, 1);
  for (int answers = 0; answers < 2; ++answers) EXPECT_EQ(again.Read().answer().version().number(), 1);
  EXPECT_EQ(again.Pull(1), Floats(2 * kElements, 9));
}

TEST_F(ExchangeTest, HalfAPushIsForgottenWithItsStream) {
  alice_->Write(TestWorker::PushFrame(0, 1, 0, Floats(kChunkElements, 5), false));
  TestWorker again(address_, 1, 101);
  ASSERT_EQ(again.SayHello().shards_size(), 2);
  EXPECT_EQ(Weights(), Floats(2 * kElements, 10));
  ExpectGoodStep(again, 1, 9);
}

TEST_F(ExchangeTest, WhoSendsWhatIsRefusedIsReadFromTheMoreSlowlyTheMoreItIs) {
  constexpr int kFrames = 20, kItems = 25;
  wire::WorkerFrame frame = TestWorker::PullFrame(1, 0);
  frame.mutable_items(0)->mutable_pull()->mutable_shards(0)->set_shard(99);
  for (int i = 1; i < kItems; ++i) *frame.add_items() = frame.items(0);
  TestWorker worker(address_, 2, 102);
  ASSERT_EQ(worker.SayHello().shards_size(), 2);
  const absl::Time begin = time_.Now();
  for (int i = 0; i < kFrames; ++i) worker.Write(frame);
  ExpectGoodStep(*alice_, 1, 9);
  for (int i = 0; i < kFrames * kItems; ++i) ASSERT_TRUE(worker.Read().has_refused());
  EXPECT_GE(time_.Now() - begin, (kFrames - 1) * kItems * Stream::kPauseOfItem);
}

TEST_F(ExchangeTest, WrongFramesAreRefusedAndTheStreamGoesOn) {
  const std::string chunk = Floats(kChunkElements, 1);
  wire::WorkerFrame frame = TestWorker::PushFrame(0, 1, 0, chunk, false);
  frame.set_job(78);
  ExpectRefused(frame, grpc::StatusCode::FAILED_PRECONDITION, "job 78");
  frame = TestWorker::PushFrame(0, 2, 0, chunk, false);
  frame.set_generation(4);
  ExpectRefused(frame, grpc::StatusCode::FAILED_PRECONDITION, "generation 4; the server is at 5");
  frame.set_generation(6);
  ExpectRefused(frame, grpc::StatusCode::UNAVAILABLE, "still at 5");
  ExpectRefused(TestWorker::PushFrame(9, 1, 0, chunk, false), grpc::StatusCode::INVALID_ARGUMENT,
                "shard 9 is not here; server 1 has 2 shards, from 0 to 1");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 0, chunk, true), grpc::StatusCode::INVALID_ARGUMENT,
                "push has 1024 elements; the shard has 1500");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 0, "abc", true), grpc::StatusCode::INVALID_ARGUMENT,
                "payload has 3 bytes for 0 elements");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 0, Floats(kElements, 1), true), grpc::StatusCode::INVALID_ARGUMENT,
                "allowed are at most 4096");
  ExpectRefused(
      TestWorker::PushFrame(0, step_ + 1, 0, Floats(kChunkElements, std::numeric_limits<float>::quiet_NaN()), false),
      grpc::StatusCode::INVALID_ARGUMENT, "not finite");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 7, chunk, false), grpc::StatusCode::INVALID_ARGUMENT,
                "not begun at element 0");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 3, 0, chunk, false), grpc::StatusCode::FAILED_PRECONDITION,
                "expected is");
  frame = TestWorker::PullFrame(99, 0);
  frame.mutable_items(0)->mutable_pull()->mutable_shards(1)->set_shard(4);
  ExpectRefused(frame, grpc::StatusCode::INVALID_ARGUMENT, "shard 4 is not here");
}

TEST_F(ExchangeTest, StreamsThatSpeakWronglyEndWithAStatus) {
  using Worker = TestWorker;
  ExpectEnds([](Worker& worker) { worker.Write(Worker::PullFrame(1, 0)); }, grpc::StatusCode::INVALID_ARGUMENT,
             "must be a Hello");
  ExpectEnds([](Worker& worker) { worker.Write(Worker::Frame()); }, grpc::StatusCode::INVALID_ARGUMENT,
             "frame has 0 items");
  ExpectEnds(
      [](Worker& worker) {
        worker.SayHello();
        wire::WorkerFrame frame = Worker::Frame();
        frame.add_items();
        worker.Write(frame);
      },
      grpc::StatusCode::INVALID_ARGUMENT, "no body");
  ExpectEnds(
      [](Worker& worker) {
        worker.SayHello();
        wire::WorkerFrame frame = Worker::PushFrame(0, 1, 0, Floats(kChunkElements, 1), false);
        frame.mutable_items(0)->set_payload_bytes(100);
        worker.Write(frame);
      },
      grpc::StatusCode::INVALID_ARGUMENT, "claim 100 bytes of payload, the frame has 4096");
  ExpectEnds(
      [](Worker& worker) {
        worker.SayHello();
        worker.Write(worker.hello_frame());
      },
      grpc::StatusCode::INVALID_ARGUMENT, "second Hello");
  wire::WorkerFrame early;  // of one that follows a server which has come back
  ExpectEnds([&](Worker& worker) { worker.Write((early = worker.hello_frame(), early.set_generation(4), early)); },
             grpc::StatusCode::UNAVAILABLE, "generation 4; the server is at 5; fetch the shard map and try again");
  ExpectEnds(
      [](Worker& worker) {
        worker.hello().set_worker(9);
        worker.SayHello();
      },
      grpc::StatusCode::FAILED_PRECONDITION, "worker 9");
  ExpectEnds(
      [](Worker& worker) {
        worker.hello().set_incarnation(99);
        worker.SayHello();
      },
      grpc::StatusCode::FAILED_PRECONDITION, "incarnation 99");
  ExpectEnds(
      [](Worker& worker) {
        worker.hello().set_pull_encoding(wire::ENCODING_INT8);
        worker.SayHello();
      },
      grpc::StatusCode::INVALID_ARGUMENT, "pull_encoding 4");
  ExpectEnds(
      [](Worker& worker) {
        worker.hello().set_clock(std::numeric_limits<uint64_t>::max());
        worker.SayHello();
      },
      grpc::StatusCode::INVALID_ARGUMENT, "clock");
  ExpectEnds(
      [](Worker& worker) {
        worker.hello_frame().set_job(1);
        worker.SayHello();
      },
      grpc::StatusCode::FAILED_PRECONDITION, "job 1");
  ExpectEnds(
      [](Worker& worker) {
        worker.SayHello();
        worker.Write(Worker::PushFrame(0, 1, 0, std::string(16 << 20, 'x'), false));
      },
      grpc::StatusCode::RESOURCE_EXHAUSTED, "larger than max");
}

// Sends raw bytes as one frame on a new stream and returns how the stream ended.
grpc::Status SendRaw(const std::string& address, const std::string& bytes) {
  grpc::GenericStub stub(rpc::DataChannel(address));
  grpc::CompletionQueue queue;
  auto context = rpc::ContextWithTimeout(absl::Seconds(20));
  auto call = stub.PrepareCall(context.get(), "/slackline.wire.ParameterServer/Exchange", &queue);
  void* tag;
  bool ok;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(bytes);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return status;
}

TEST_F(ExchangeTest, GarbageEndsItsStreamOnly) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::string bytes(1 + random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const grpc::Status status = SendRaw(address_, bytes);
    EXPECT_THAT(status.error_code(),
                testing::AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::FAILED_PRECONDITION))
        << status.error_message();
  }
  ExpectGoodStep(*alice_, 1, 9);
}

TEST_F(ExchangeTest, FloodByOneWhoDoesNotReadStopsNobodyAndIsNotReadEither) {
  grpc::ChannelArguments narrow;
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  narrow.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  TestWorker flooder(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), narrow), 2, 102);
  ASSERT_EQ(flooder.SayHello().shards_size(), 2);
  const wire::WorkerFrame wrong = TestWorker::PushFrame(9, 1, 0, "", false);
  constexpr int kFrames = 20000;
  for (int count = 0; count < kFrames; ++count) ASSERT_TRUE(flooder.Write(wrong));
  for (uint64_t step = 1; step <= 50; ++step) ExpectGoodStep(*alice_, step, 10 - static_cast<float>(step));
  const Counter& refused = metrics_.counter("slackline_ps_pushes_refused_total", "", {{"code", "INVALID_ARGUMENT"}});
  EXPECT_GT(refused.value(), 0);
  EXPECT_LT(refused.value(), kFrames / 2);  // answers that nobody takes do not pile up
}

TEST_F(ExchangeTest, StreamsAreLimited) {
  std::vector<std::unique_ptr<TestWorker>> readers;
  for (int count = 0; count < 11; ++count) {
    readers.push_back(std::make_unique<TestWorker>(address_, 0, 0, wire::ROLE_READER));
    ASSERT_EQ(readers.back()->SayHello().shards_size(), 2);
  }
  TestWorker last(address_, 0, 0, wire::ROLE_READER);
  last.SayHello();
  const grpc::Status status = last.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("allowed are 12"));
}

TEST_F(ExchangeTest, StreamWithoutHelloIsEnded) {
  TestWorker silent(address_, 2, 102);
  const grpc::Status status = silent.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no Hello within"));
}

TEST_F(ExchangeTest, WorkerThatLeftTheSetIsShutOut) {
  ASSERT_TRUE(SetMembers(2, {2}).ok());
  const grpc::Status status = alice_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  TestWorker again(address_, 1, 101);
  again.SayHello();
  EXPECT_EQ(again.Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ExchangeTest, ControlCallsThatDoNotFitAreRefused) {
  EXPECT_TRUE(Install(InstallRequest()).ok());  // the same again
  wire::InstallShardsRequest other = InstallRequest();
  other.set_generation(6);
  EXPECT_EQ(Install(other).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  other = InstallRequest();
  other.set_server(2);
  EXPECT_THAT(Install(other).error_message(), HasSubstr("shards for server 2; this is server 1"));
  ASSERT_TRUE(SetMembers(3, {1, 2}).ok());
  EXPECT_EQ(SetMembers(2, {1}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(SetMembers(4, {1}, 4).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  ExpectGoodStep(*alice_, 1, 9);
}

TEST_F(ExchangeTest, StopEndsStreamsAndTellsTheProcess) {
  wire::StopRequest request;
  wire::StopReply reply;
  request.set_job(1);
  EXPECT_EQ(control_->Stop(rpc::ContextWithTimeout(absl::Seconds(10)).get(), request, &reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  request.set_job(kJob);
  request.set_reason("the job is done");
  ASSERT_TRUE(control_->Stop(rpc::ContextWithTimeout(absl::Seconds(10)).get(), request, &reply).ok());
  EXPECT_EQ(stopped_.Wait(absl::Seconds(10)), "the job is done");
  EXPECT_EQ(alice_->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Exchange, TakesNoShardsBeforeItKnowsWhoItIsAndNoHelloBeforeShards) {
  Metrics metrics;
  SteadyTime time;
  ExchangeOptions options;
  options.job = PlainJob();
  const auto first = *Exchange::Start(options, metrics, time);
  const auto second = *Exchange::Start(options, metrics, time);  // two live in one process
  const std::string address = "127.0.0.1:" + std::to_string(first->port());
  auto control = wire::ParameterServerControl::NewStub(rpc::ControlChannel(address));
  wire::InstallShardsReply reply;
  EXPECT_EQ(control->InstallShards(rpc::ContextWithTimeout(absl::Seconds(10)).get(), {}, &reply).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  TestWorker worker(address, 1, 101);
  worker.SayHello();
  EXPECT_EQ(worker.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Exchange, AddressInUseIsAnError) {
  Metrics metrics;
  SteadyTime time;
  ExchangeOptions options;
  options.job = PlainJob();
  const auto first = *Exchange::Start(options, metrics, time);
  options.listen = "127.0.0.1:" + std::to_string(first->port());
  EXPECT_EQ(Exchange::Start(options, metrics, time).status().code(), absl::StatusCode::kUnavailable);
}

// Shard 0 of many chunks, the last 500 elements averaged; shard 1 of a single small one.
class PullEncodingTest : public ExchangeTest {
 protected:
  static constexpr uint64_t kLarge = 20000, kSmall = 500, kAveraged = 500;

  void SetUp() override {
    wire::InstallShardsRequest request = InstallRequest();
    request.set_trained_elements(kSmall + kLarge - kAveraged);
    request.mutable_shards(0)->set_end(kSmall);
    request.mutable_shards(1)->set_begin(kSmall);
    request.mutable_shards(1)->set_end(kSmall + kLarge);
    ASSERT_TRUE(exchange_->SetIdentity({JobId(kJob), ServerId(1)}).ok());
    ASSERT_TRUE(Install(request).ok());
    ASSERT_TRUE(SetMembers(1, {1}).ok());
    for (float& weight : weights_) weight = 0.1f * static_cast<float>(&weight - weights_.data());
    alice_ = std::make_unique<TestWorker>(address_, 1, 101);
    alice_->hello().set_pull_encoding(wire::ENCODING_BF16);
    ASSERT_EQ(alice_->SayHello().shards_size(), 2);
    Seed(0, 0, kSmall);
    Seed(1, kSmall, kLarge);
  }

  void Seed(uint32_t shard, uint64_t begin, uint64_t elements) {
    for (uint64_t offset = 0; offset < elements; offset += kChunkElements) {
      const uint64_t size = std::min(kChunkElements, elements - offset);
      const auto first = weights_.begin() + static_cast<ptrdiff_t>(begin + offset);
      alice_->Write(TestWorker::PushFrame(shard, 0, offset, Floats({first, first + static_cast<ptrdiff_t>(size)}),
                                          offset + size == elements, /*seed=*/true));
    }
    ASSERT_EQ(alice_->Read().answer().outcome(), wire::OUTCOME_APPLIED);
  }

  std::vector<float> weights_ = std::vector<float>(kSmall + kLarge);
};

TEST_F(PullEncodingTest, Bf16IsSentWhereItWasAskedForButNotOfAveragedElements) {
  alice_->Write(TestWorker::PullFrame(1, 0));
  std::vector<float> got(weights_.size(), -1);
  uint64_t halves = 0;
  for (int done = 0; done < 2;) {
    const wire::ServerItem item = alice_->Read();
    ASSERT_TRUE(item.has_pull()) << item.DebugString();
    const wire::PullChunk& chunk = item.pull();
    const std::string bytes = alice_->payload();
    const absl::StatusOr<codec::Codec> codec = CodecFromWire(chunk.encoding());
    ASSERT_TRUE(codec.ok() && codec::IsEncodedLength(*codec, chunk.elements(), bytes.size())) << item.DebugString();
    if (codec->encoding == codec::Encoding::kBf16) halves += chunk.elements();
    const ByteSegments segments({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
    const absl::Span<float> part =
        absl::MakeSpan(got).subspan(chunk.shard() * kSmall + chunk.offset(), chunk.elements());
    const float* const values = codec::BlockDecoder(*codec, segments).Next(part);
    std::copy_n(values, part.size(), part.data());
    done += chunk.has_done() ? 1 : 0;
  }
  // The chunk in which the averaged elements begin is fp32.
  EXPECT_EQ(halves, kSmall + (kLarge - kAveraged) / kChunkElements * kChunkElements);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], weights_[i], weights_[i] / 256) << i;
  EXPECT_EQ(got.back(), weights_.back());
}

}  // namespace
}  // namespace slackline::ps
