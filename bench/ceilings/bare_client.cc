#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/ceilings/bare_stream.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"

namespace slackline::bench {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(10);

class GrpcBareClient : public BareClient {
 public:
  GrpcBareClient(const std::string& address, const BareShape& shape)
      : shape_(shape),
        channel_(rpc::DataChannel(address)),
        stub_(channel_),
        gradient_(shape.bytes / sizeof(float), 0.5f),
        parameters_(shape.bytes / sizeof(float)) {
    if (!channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kConnectTimeout))) {
      ExitOnError(absl::UnavailableError(absl::StrCat("no bare stream's server answers at ", address)));
    }
    stream_ = stub_.PrepareCall(&context_, absl::StrCat("/bare/", shape.bytes, "/", shape.chunk_bytes), &queue_);
    stream_->StartCall(TagOf(Tag::kStarted));
    SLACKLINE_CHECK(Next() == Tag::kStarted);
    stream_->Read(&chunk_, TagOf(Tag::kRead));
  }

  ~GrpcBareClient() override {
    context_.TryCancel();
    grpc::Status status;
    stream_->Finish(&status, TagOf(Tag::kFinished));
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok) && tag != TagOf(Tag::kFinished)) {
    }
    queue_.Shutdown();
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Rounds Run(double seconds, uint32_t depth) override {
    Rounds rounds;
    const absl::Time begin = absl::Now();
    const absl::Time end = begin + absl::Seconds(seconds);
    while (begun_.size() < depth) Begin();
    while (!begun_.empty()) {
      if (Next() == Tag::kWritten) {
        writing_ = false;
        SendMore();
        continue;
      }
      if (!TakeChunk()) continue;
      const absl::Time now = absl::Now();
      rounds.round_us.push_back(absl::ToDoubleMicroseconds(now - begun_.front()));
      begun_.pop_front();
      if (now < end) Begin();
    }
    rounds.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    return rounds;
  }

 private:
  enum class Tag : intptr_t { kStarted = 1, kRead, kWritten, kFinished };
  static void* TagOf(Tag tag) { return reinterpret_cast<void*>(tag); }

  Tag Next() {
    void* tag = nullptr;
    bool ok = false;
    SLACKLINE_CHECK(queue_.Next(&tag, &ok));
    if (!ok) ExitOnError(absl::UnavailableError("the bare stream's server is gone"));
    return static_cast<Tag>(reinterpret_cast<intptr_t>(tag));
  }

  void Begin() {
    begun_.push_back(absl::Now());
    ++unsent_;
    SendMore();
  }

  void SendMore() {
    if (writing_ || unsent_ == 0) return;
    const uint64_t size = std::min(shape_.chunk_bytes, shape_.bytes - sent_);
    const auto* from = reinterpret_cast<const char*>(gradient_.data()) + sent_;
    const grpc::Slice slice(from, size, grpc::Slice::STATIC_SLICE);
    sent_ += size;
    if (sent_ == shape_.bytes) {
      sent_ = 0;
      --unsent_;
    }
    writing_ = true;
    stream_->Write(grpc::ByteBuffer(&slice, 1), TagOf(Tag::kWritten));
  }

  // Copies what has arrived and asks for more. Returns true when it ended a round.
  bool TakeChunk() {
    std::vector<grpc::Slice> slices;
    SLACKLINE_CHECK(chunk_.Dump(&slices).ok());
    for (const grpc::Slice& slice : slices) {
      std::memcpy(reinterpret_cast<char*>(parameters_.data()) + received_, slice.begin(), slice.size());
      received_ += slice.size();
    }
    chunk_.Clear();
    stream_->Read(&chunk_, TagOf(Tag::kRead));
    if (received_ < shape_.bytes) return false;
    received_ = 0;
    return true;
  }

  const BareShape shape_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  const std::vector<float> gradient_;
  std::vector<float> parameters_;
  std::deque<absl::Time> begun_;  // when each unanswered round began
  uint64_t unsent_ = 0;           // rounds begun and not sent to their end
  uint64_t sent_ = 0;             // bytes of the round that is going out
  uint64_t received_ = 0;         // bytes of the answer that is arriving
  grpc::ByteBuffer chunk_;
  bool writing_ = false;
};

}  // namespace

std::unique_ptr<BareClient> BareClient::Connect(const std::string& address, const BareShape& shape) {
  return std::make_unique<GrpcBareClient>(address, shape);
}

}  // namespace slackline::bench
