#include "tests/worker/fake_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/check.h"
#include "common/codec/encode.h"
#include "common/codec/wire_encoding.h"

namespace slackline::worker {
namespace {

absl::Span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

FakeServer::FakeServer(std::map<uint32_t, uint64_t> shards) {
  for (const auto& [shard, elements] : shards) shards_[shard].weights.resize(elements);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(static_cast<wire::ParameterServer::Service*>(this));
  server_ = builder.BuildAndStart();
  SLACKLINE_CHECK(server_ != nullptr);
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeServer::~FakeServer() { Stop(); }

void FakeServer::Stop() { server_->Shutdown(std::chrono::system_clock::now()); }

void FakeServer::set_hook(Hook hook) {
  absl::MutexLock lock(&mutex_);
  hook_ = std::move(hook);
}

void FakeServer::DiscardNext(uint32_t shard, wire::DiscardReason reason) {
  absl::MutexLock lock(&mutex_);
  shards_.at(shard).discards_next = reason;
}

std::vector<float> FakeServer::weights(uint32_t shard) const {
  absl::MutexLock lock(&mutex_);
  return shards_.at(shard).weights;
}

std::vector<wire::WorkerItem> FakeServer::items() const {
  absl::MutexLock lock(&mutex_);
  return items_;
}

std::vector<wire::WorkerItem> FakeServer::pushes(uint32_t shard) const {
  std::vector<wire::WorkerItem> found = items();
  std::erase_if(found, [=](const wire::WorkerItem& item) { return !item.has_push() || item.push().shard() != shard; });
  return found;
}

std::vector<std::string> FakeServer::pushed_bytes(uint32_t shard) const {
  absl::MutexLock lock(&mutex_);
  const auto found = pushed_bytes_.find(shard);
  return found == pushed_bytes_.end() ? std::vector<std::string>() : found->second;
}

wire::WorkerFrame FakeServer::last_frame() const {
  absl::MutexLock lock(&mutex_);
  return last_frame_;
}

bool FakeServer::AwaitItem(wire::WorkerItem::BodyCase body) const {
  absl::MutexLock lock(&mutex_);
  const auto arrived = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return std::any_of(items_.begin(), items_.end(),
                       [=](const wire::WorkerItem& item) { return item.body_case() == body; });
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&arrived), absl::Seconds(20));
}

FakeServer::Verdict FakeServer::Look(const wire::WorkerItem& item, Stream& stream) {
  Hook hook;
  {
    absl::MutexLock lock(&mutex_);
    items_.push_back(item);
    hook = hook_;
  }
  return hook ? hook(item, stream) : Verdict{};
}

grpc::Status FakeServer::Exchange(grpc::ServerContext*, Stream* stream) {
  wire::WorkerFrame frame;
  while (stream->Read(&frame)) {
    {
      absl::MutexLock lock(&mutex_);
      last_frame_ = frame;
    }
    size_t begin = 0;
    for (const wire::WorkerItem& item : frame.items()) {
      const auto end = Hear(item, frame.payload().substr(begin, item.payload_bytes()), *stream);
      if (end) return *end;
      begin += item.payload_bytes();
    }
  }
  return grpc::Status::OK;
}

std::optional<grpc::Status> FakeServer::Hear(const wire::WorkerItem& item, const std::string& payload, Stream& stream) {
  const Verdict verdict = Look(item, stream);
  if (verdict.end && !verdict.swallow) Handle(item, payload);  // done, but the answer is lost
  if (verdict.end || verdict.swallow) return verdict.end;
  for (const Said& said : Handle(item, payload)) {
    wire::ServerFrame frame;
    *frame.add_items() = said.item;
    frame.mutable_items(0)->set_payload_bytes(static_cast<uint32_t>(said.payload.size()));
    frame.set_payload(said.payload);
    stream.Write(frame);
  }
  return std::nullopt;
}

std::vector<FakeServer::Said> FakeServer::Handle(const wire::WorkerItem& item, const std::string& payload) {
  absl::MutexLock lock(&mutex_);
  std::vector<Said> out;
  if (item.has_hello()) out.push_back(Greet(item.hello()));
  if (item.has_push()) out = Take(item.push(), payload);
  if (item.has_pull()) Serve(item.pull(), out);
  return out;
}

FakeServer::Said FakeServer::Greet(const wire::Hello& hello) {
  pull_encoding_ = hello.pull_encoding();
  wire::ServerItem item;
  wire::Welcome& welcome = *item.mutable_welcome();
  welcome.set_window(1);
  welcome.set_chunk_bytes_max(chunk_bytes_);
  if (protocol_major_ > 0) {
    welcome.mutable_version()->set_major(protocol_major_);
    welcome.mutable_version()->set_minor(protocol_minor_);
  }
  for (const wire::ShardClock& asked : hello.shards()) {
    const auto shard = shards_.find(asked.shard());
    if (shard == shards_.end()) continue;
    shard->second.answered = std::max(shard->second.answered, asked.last_answered());
    shard->second.waiting.reset();
    wire::ShardState& state = *welcome.add_shards();
    state.set_shard(shard->first);
    state.set_last_answered(shard->second.answered);
    state.set_seeded(shard->second.seeded);
  }
  return {item, ""};
}

std::vector<FakeServer::Said> FakeServer::Take(const wire::PushChunk& chunk, const std::string& payload) {
  Shard& shard = shards_.at(chunk.shard());
  pushed_bytes_[chunk.shard()].push_back(payload);
  if (chunk.offset() == 0) shard.staged.clear();
  SLACKLINE_CHECK(chunk.offset() == shard.staged.size());
  SLACKLINE_CHECK(payload.size() <= chunk_bytes_);
  shard.staged.resize(chunk.offset() + chunk.elements());
  // Checks the length, and adds what the bytes say to zeros.
  codec::ReturnToResidual(CodecFromWire(chunk.encoding()).value(), AsBytes(payload),
                          absl::MakeSpan(shard.staged).subspan(chunk.offset()));
  if (!chunk.has_commit()) return {};
  const std::vector<float> values = std::exchange(shard.staged, {});
  SLACKLINE_CHECK(values.size() == shard.weights.size());

  wire::ServerItem answer;
  answer.mutable_answer()->set_shard(chunk.shard());
  answer.mutable_answer()->set_sequence(chunk.sequence());
  answer.mutable_answer()->set_outcome(wire::OUTCOME_APPLIED);
  if (chunk.seed()) {
    if (shard.seeded) answer.mutable_answer()->set_outcome(wire::OUTCOME_DISCARDED);
    if (!shard.seeded) shard.weights = values;
    shard.seeded = true;
  } else if (chunk.sequence() > shard.answered && shard.discards_next) {
    answer.mutable_answer()->set_outcome(wire::OUTCOME_DISCARDED);
    answer.mutable_answer()->set_reason(*std::exchange(shard.discards_next, std::nullopt));
    shard.answered = chunk.sequence();
  } else if (chunk.sequence() > shard.answered) {
    for (size_t i = 0; i < values.size(); ++i) shard.weights[i] -= values[i];
    shard.answered = chunk.sequence();
    ++shard.version;
  }
  answer.mutable_answer()->mutable_version()->set_lineage(1);
  answer.mutable_answer()->mutable_version()->set_number(shard.version);
  answer.mutable_answer()->set_clock_min(shard.answered);
  std::vector<Said> out = {{answer, ""}};
  if (shard.waiting) Serve(*std::exchange(shard.waiting, std::nullopt), out);
  return out;
}

void FakeServer::Serve(const wire::Pull& pull, std::vector<Said>& out) {
  for (const wire::ShardVersion& asked : pull.shards()) {
    Shard& shard = shards_.at(asked.shard());
    if (shard.answered < pull.clock()) {  // waits for the worker's own push
      shard.waiting = pull;
      shard.waiting->clear_shards();
      *shard.waiting->add_shards() = asked;
      continue;
    }
    wire::Version version;
    version.set_lineage(1);
    version.set_number(shard.version);
    const bool unchanged = asked.has_known() && asked.known().number() == shard.version;
    const size_t step = chunk_bytes_ / sizeof(float);
    for (size_t offset = 0; !unchanged && offset < shard.weights.size(); offset += step) {
      Said& said = out.emplace_back();
      wire::PullChunk& chunk = *said.item.mutable_pull();
      chunk.set_id(pull.id());
      chunk.set_shard(asked.shard());
      chunk.set_offset(offset);
      chunk.set_elements(std::min(step, shard.weights.size() - offset));
      *chunk.mutable_version() = version;
      const codec::Codec codec = CodecFromWire(pull_encoding_).value();
      chunk.set_encoding(pull_encoding_);
      said.payload.resize(codec::EncodedBytesMax(codec, chunk.elements()));
      codec::Encode(codec, absl::MakeSpan(shard.weights).subspan(offset, chunk.elements()),
                    {reinterpret_cast<std::byte*>(said.payload.data()), said.payload.size()});
    }
    wire::PullDone& done = *out.emplace_back().item.mutable_pull_done();
    done.set_id(pull.id());
    done.set_shard(asked.shard());
    *done.mutable_version() = version;
    done.set_unchanged(unchanged);
    done.set_clock_min(shard.answered);
  }
}

}  // namespace slackline::worker
