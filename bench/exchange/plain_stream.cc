#include "bench/exchange/plain_stream.h"

#include "absl/strings/str_cat.h"
#include "bench/exchange/data_path.h"
#include "bench/support/process.h"
#include "common/rpc/channel.h"
#include "common/rpc/frame.h"

namespace slackline::bench {

PlainStream::PlainStream(const worker::ShardMap& map, const worker::ServerInfo& server, wire::Role role,
                         uint32_t worker)
    : server_(absl::StrCat(server.name, " (", server.address, ")")),
      generation_(map.generation.value()),
      channel_(rpc::DataChannel(server.address)),
      stub_(channel_) {
  call_ = stub_.PrepareCall(&context_, "/slackline.wire.ParameterServer/Exchange", &queue_);
  call_->StartCall(this);
  Await("the start of its stream");
  wire::WorkerFrame hello = Frame();
  wire::Hello& first = *hello.add_items()->mutable_hello();
  first.set_role(role);
  first.set_worker(worker);
  first.set_incarnation(1);
  first.set_pull_encoding(wire::ENCODING_FP32);
  first.set_window(1);
  Send(hello);
  welcome_ = Receive().items(0).welcome();
}

PlainStream::~PlainStream() {
  context_.TryCancel();
  queue_.Shutdown();
}

wire::WorkerFrame PlainStream::Frame() const {
  wire::WorkerFrame frame;
  frame.set_job(kBenchJob);
  frame.set_generation(generation_);
  return frame;
}

void PlainStream::Send(const wire::WorkerFrame& frame, absl::Span<const std::byte> payload) {
  rpc::Attachment piece{payload, nullptr};
  call_->Write(rpc::Build(frame, absl::MakeSpan(&piece, 1)), this);
  Await("a frame to be taken");
}

wire::ServerFrame PlainStream::Receive() {
  grpc::ByteBuffer bytes;
  call_->Read(&bytes, this);
  Await("a frame");
  wire::ServerFrame frame;
  ExitOnError(rpc::Parse(bytes, frame).status());
  for (const wire::ServerItem& item : frame.items()) {
    if (!item.has_refused()) continue;
    ExitOnError(absl::AbortedError(absl::StrCat(server_, " refuses: ", item.refused().message())));
  }
  return frame;
}

void PlainStream::Await(const char* what) {
  void* tag = nullptr;
  bool ok = false;
  if (queue_.Next(&tag, &ok) && ok) return;
  ExitOnError(
      absl::UnavailableError(absl::StrCat("waited for ", what, " from ", server_, " and it broke the stream off")));
}

}  // namespace slackline::bench
