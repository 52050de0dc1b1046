// The real service of a server process over loopback, and clients that speak plain protobuf.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "common/rpc/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parameter_server.grpc.pb.h"
#include "ps/service/awaited.h"
#include "ps/service/sequencer.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps {

inline constexpr uint64_t kJob = 77;
inline constexpr uint64_t kGeneration = 5;
inline constexpr uint64_t kElements = 1500;  // elements of a shard: one whole chunk and a shorter one
inline constexpr uint64_t kChunkElements = 1024;

// A worker's stream, with frames that a test makes. Every wait has the call's deadline.
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
  // Returns the next item; it is empty if the stream has ended.
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
  // Returns the payload of the item read last.
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

  // Pulls both shards and returns their bytes, one after the other.
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
  int next_ = 0;  // index of the next item of received_
  size_t payload_begin_ = 0;
  size_t payload_size_ = 0;
  uint64_t pull_ = 0;
};

class ExchangeTest : public testing::Test {
 protected:
  ExchangeTest() {
    SequencerOptions options;
    options.job = PlainJob();
    options.job.mutable_limits()->set_streams_max(12);  // including streams that are just ending
    options.timeouts.heartbeat = absl::Milliseconds(50);
    options.on_stop = [this](const std::string& reason) { stopped_.Give(reason); };
    exchange_ = *Sequencer::Start(options, metrics_, time_);
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

  // Pushes 1 to both shards and pulls as the same worker; all weights must then be `weight`.
  void ExpectGoodStep(TestWorker& worker, uint64_t sequence, float weight) {
    for (const uint32_t shard : {0, 1}) worker.SendPush(shard, sequence, 1);
    for (int answers = 0; answers < 2; ++answers) {
      const wire::ServerItem item = worker.Read();
      ASSERT_EQ(item.answer().outcome(), wire::OUTCOME_APPLIED) << item.DebugString();
    }
    EXPECT_EQ(worker.Pull(sequence), Floats(2 * kElements, weight));
  }

  // Expects that the frame is refused on alice's stream, that nothing changes, and that the stream continues.
  void ExpectRefused(const wire::WorkerFrame& frame, grpc::StatusCode code, const std::string& words) {
    SCOPED_TRACE(words);
    const std::string before = Weights();
    ASSERT_TRUE(alice_->Write(frame));
    const wire::ServerItem answer = alice_->Read();
    ASSERT_TRUE(answer.has_refused()) << answer.DebugString();
    EXPECT_EQ(answer.refused().code(), code) << answer.DebugString();
    EXPECT_THAT(answer.refused().message(), testing::HasSubstr(words));
    EXPECT_EQ(Weights(), before);
    ++step_;
    ExpectGoodStep(*alice_, step_, 10 - static_cast<float>(step_));
  }

  // Expects that a stream on which `speak` comes first ends with this status, and that nothing changes.
  void ExpectEnds(const std::function<void(TestWorker&)>& speak, grpc::StatusCode code, const std::string& words) {
    SCOPED_TRACE(words);
    const std::string before = Weights();
    TestWorker worker(address_, 2, 102);
    speak(worker);
    while (worker.Read().body_case() != wire::ServerItem::BODY_NOT_SET) {
    }
    const grpc::Status status = worker.Finish();
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), testing::HasSubstr(words));
    EXPECT_EQ(Weights(), before);
    ++step_;
    ExpectGoodStep(*alice_, step_, 10 - static_cast<float>(step_));
  }

  Metrics metrics_;
  SteadyTime time_;
  Awaited<std::string> stopped_;
  std::unique_ptr<Sequencer> exchange_;
  std::string address_;
  std::unique_ptr<wire::ParameterServerControl::Stub> control_;
  std::unique_ptr<TestWorker> alice_;
  uint64_t step_ = 0;
};

}  // namespace slackline::ps
