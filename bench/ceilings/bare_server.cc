#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/ceilings/bare_stream.h"
#include "common/base/byte_segments.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"

namespace slackline::bench {
namespace {

constexpr float kLearningRate = 1e-6f;

// `gradient` need not be aligned.
void Sgd(const std::byte* gradient, size_t size, float* __restrict weights) {
  for (size_t i = 0; i < size; ++i) {
    float value;
    std::memcpy(&value, gradient + i * sizeof(float), sizeof(float));
    weights[i] -= kLearningRate * value;
  }
}

// Steps in the slices, as they were received; a float can lie across two of them.
void SgdFromSlices(const grpc::ByteBuffer& chunk, float* weights) {
  std::vector<grpc::Slice> slices;
  SLACKLINE_CHECK(chunk.Dump(&slices).ok());
  ByteSegments segments;
  for (const grpc::Slice& slice : slices) {
    segments.Append({reinterpret_cast<const std::byte*>(slice.begin()), slice.size()});
  }
  ByteReader reader(segments);
  while (reader.left() >= sizeof(float)) {
    const size_t run = reader.contiguous_left() / sizeof(float);
    if (run > 0) {
      Sgd(reader.contiguous(run * sizeof(float)), run, weights);
      reader.Skip(run * sizeof(float));
      weights += run;
    } else {
      std::byte across[sizeof(float)];
      reader.Read(across, sizeof(float));
      Sgd(across, 1, weights++);
    }
  }
}

class BareServer;

// One stream, one read and one write at a time. Deletes itself when it has ended.
class BareCall {
 public:
  explicit BareCall(BareServer& server);
  void Accepted(bool ok);
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Finished(bool) { delete this; }

  using Handler = void (BareCall::*)(bool);
  struct Tag {
    BareCall* call;
    Handler handler;
  };

 private:
  void SendMore();

  BareServer& server_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Tag accepted_{this, &BareCall::Accepted}, read_{this, &BareCall::ReadDone}, written_{this, &BareCall::WriteDone},
      finished_{this, &BareCall::Finished};
  BareShape shape_;
  grpc::ByteBuffer chunk_;
  uint64_t received_ = 0;  // bytes of the round that is arriving
  uint64_t answers_ = 0;   // rounds that have arrived and are not answered
  uint64_t sent_ = 0;      // bytes of the answer that is going out
  bool reading_ = false, writing_ = false, over_ = false;
};

class BareServer {
 public:
  BareServer(const std::string& listen, uint64_t bytes_max) : weights_(bytes_max / sizeof(float), 1.0f) {
    grpc::ServerBuilder builder;
    rpc::SetDataServerArguments(builder);
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    SLACKLINE_CHECK(server_ != nullptr);
  }

  void Run() {
    new BareCall(*this);
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
      const auto* what = static_cast<BareCall::Tag*>(tag);
      (what->call->*what->handler)(ok);
    }
  }

  int port() const { return port_; }
  grpc::AsyncGenericService& service() { return service_; }
  grpc::ServerCompletionQueue* queue() { return queue_.get(); }
  std::vector<float>& weights() { return weights_; }

 private:
  std::vector<float> weights_;
  int port_ = 0;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
};

BareCall::BareCall(BareServer& server) : server_(server) {
  server_.service().RequestCall(&context_, &stream_, server_.queue(), server_.queue(), &accepted_);
}

void BareCall::Accepted(bool ok) {
  if (!ok) return Finished(ok);
  new BareCall(server_);
  // The shape of the rounds is the method's name.
  unsigned long long bytes = 0, chunk_bytes = 0;
  const int fields = std::sscanf(context_.method().c_str(), "/bare/%llu/%llu", &bytes, &chunk_bytes);
  if (fields != 2 || bytes > server_.weights().size() * sizeof(float) || chunk_bytes == 0) {
    return stream_.Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such rounds"), &finished_);
  }
  shape_ = {bytes, chunk_bytes};
  reading_ = true;
  stream_.Read(&chunk_, &read_);
}

void BareCall::ReadDone(bool ok) {
  reading_ = false;
  if (!ok) {
    over_ = true;
    return SendMore();
  }
  const uint64_t size = std::min<uint64_t>(chunk_.Length(), shape_.bytes - received_);
  SgdFromSlices(chunk_, server_.weights().data() + received_ / sizeof(float));
  received_ += size;
  if (received_ == shape_.bytes) {
    received_ = 0;
    ++answers_;
  }
  chunk_.Clear();
  reading_ = true;
  stream_.Read(&chunk_, &read_);
  SendMore();
}

void BareCall::WriteDone(bool ok) {
  writing_ = false;
  if (!ok) over_ = true;
  SendMore();
}

void BareCall::SendMore() {
  if (writing_ || (reading_ && over_)) return;
  if (over_) {
    writing_ = true;
    return stream_.Finish(grpc::Status::OK, &finished_);
  }
  if (answers_ == 0) return;
  const uint64_t size = std::min(shape_.chunk_bytes, shape_.bytes - sent_);
  const auto* from = reinterpret_cast<const char*>(server_.weights().data()) + sent_;
  const grpc::Slice slice(from, size, grpc::Slice::STATIC_SLICE);
  sent_ += size;
  if (sent_ == shape_.bytes) {
    sent_ = 0;
    --answers_;
  }
  writing_ = true;
  stream_.Write(grpc::ByteBuffer(&slice, 1), &written_);
}

}  // namespace

void ServeBareStreams(const std::string& listen, uint64_t bytes_max, const Channel& channel) {
  rpc::PrepareProcess();
  BareServer server(listen, bytes_max);
  const bool local = absl::StartsWith(listen, "unix");
  channel.SendText(local ? listen : absl::StrCat(listen.substr(0, listen.rfind(':')), ":", server.port()));
  server.Run();
}

}  // namespace slackline::bench
