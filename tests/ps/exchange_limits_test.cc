// Streams that speak wrongly, say too much, or say nothing: each ends or waits, nothing changes, and the next good push
// and pull work.
#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include "ps/base/service_metrics.h"
#include "ps/service/replica_stream.h"
#include "tests/ps/exchange_fixture.h"

namespace slackline::ps::exchange_limits_test {
namespace {

using testing::HasSubstr;

wire::WorkerFrame PullOfManyShards(int shards) {
  wire::WorkerFrame frame = TestWorker::Frame();
  wire::Pull& pull = *frame.add_items()->mutable_pull();
  for (int i = 0; i < shards; ++i) pull.add_shards();
  return frame;
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
        worker.hello().mutable_version()->set_major(9);
        worker.SayHello();
      },
      grpc::StatusCode::INVALID_ARGUMENT, "a client speaks protocol 9.0");
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
  ExpectEnds(
      [](Worker& worker) {
        worker.SayHello();
        worker.Write(PullOfManyShards(1'000'000));
      },
      grpc::StatusCode::INVALID_ARGUMENT, "beside its payload; allowed are 524800");
  ExpectEnds(
      [](Worker& worker) {
        worker.SayHello();
        wire::WorkerFrame frame = Worker::Frame();
        for (int item = 0; item < 10'000; ++item) frame.add_items();
        worker.Write(frame);
      },
      grpc::StatusCode::INVALID_ARGUMENT, "more than 4112 items and numbers");
}

// Readers beside each other, each with so many frames that are legal, long, and refused.
class LongFramesTest : public ExchangeTest {
 protected:
  static constexpr int kReaders = 8;

  void SendAndAwait(const wire::WorkerFrame& frame, int frames) {
    for (int i = 0; i < kReaders; ++i) {
      readers_.push_back(std::make_unique<TestWorker>(address_, 0, 0, wire::ROLE_READER));
      ASSERT_EQ(readers_.back()->SayHello().shards_size(), 2);
    }
    for (int count = 0; count < frames; ++count) {
      for (const auto& reader : readers_) ASSERT_TRUE(reader->Write(frame));
    }
    for (const auto& reader : readers_) {
      for (int count = 0; count < frames; ++count) ASSERT_TRUE(reader->Read().has_refused());
    }
  }

  std::vector<std::unique_ptr<TestWorker>> readers_;
};

TEST_F(LongFramesTest, ThoseOfAllStreamsTogetherTakeASmallPartOfTheSequencersTime) {
  constexpr int kFrames = 2;
  const wire::WorkerFrame frame = PullOfManyShards(80'000);
  const absl::Duration cost = static_cast<int64_t>(frame.ByteSizeLong()) * WorkerStream::kParseOfByte;
  const absl::Time begin = time_.Now();
  SendAndAwait(frame, kFrames);
  EXPECT_GE(time_.Now() - begin, (kReaders * kFrames - 1) * 20 * cost);
  ExpectGoodStep(*alice_, 1, 9);
}

TEST_F(LongFramesTest, NothingOfThemIsKept) {
#ifdef SLACKLINE_SANITIZED
  GTEST_SKIP() << "a sanitizer keeps what is freed";
#endif
  const uint64_t before = ResidentBytes();
  SendAndAwait(PullOfManyShards(200'000), 1);
  const uint64_t after = ResidentBytes();
  // A frame takes 11 MB when it is parsed.
  EXPECT_LT(after - std::min(before, after), uint64_t{50} << 20);
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

// A Replicate call.
struct BackupStream {
  explicit BackupStream(wire::ParameterServer::Stub& stub)
      : context(rpc::ContextWithTimeout(absl::Seconds(20))), call(stub.Replicate(context.get())) {}

  const std::unique_ptr<grpc::ClientContext> context;
  const std::unique_ptr<grpc::ClientReaderWriter<wire::BackupFrame, wire::ReplicaFrame>> call;
};

TEST_F(ExchangeTest, SilentStreamsOfBackupsAreEndedAndHoldNoPlace) {
  const auto stub = wire::ParameterServer::NewStub(rpc::DataChannel(address_));
  std::vector<std::unique_ptr<BackupStream>> silent;
  for (size_t i = 0; i < ReplicaStreams::kStreamsMax; ++i) silent.push_back(std::make_unique<BackupStream>(*stub));
  BackupStream backup(*stub);
  wire::BackupFrame frame;
  frame.mutable_hello()->set_job(kJob);
  frame.mutable_hello()->set_server(1);
  backup.call->Write(frame);
  const grpc::Status heard = backup.call->Finish();
  EXPECT_EQ(heard.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << heard.error_message();
  EXPECT_THAT(heard.error_message(), HasSubstr("not replicated"));

  const grpc::Status oldest = silent[0]->call->Finish();
  EXPECT_EQ(oldest.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(oldest.error_message(), HasSubstr("8 streams of backups; allowed are 8"));
  for (size_t i = 1; i < silent.size(); ++i) {
    const grpc::Status status = silent[i]->call->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("no hello within"));
  }
}

}  // namespace
}  // namespace slackline::ps::exchange_limits_test
