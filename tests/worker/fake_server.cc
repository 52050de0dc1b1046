#include "tests/worker/fake_server.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace slackline::worker {

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

std::vector<float> FakeServer::weights(uint32_t shard) const {
  absl::MutexLock lock(&mutex_);
  return shards_.at(shard).weights;
}

std::vector<wire::WorkerFrame> FakeServer::frames() const {
  absl::MutexLock lock(&mutex_);
  return frames_;
}

std::vector<wire::WorkerFrame> FakeServer::pushes(uint32_t shard) const {
  std::vector<wire::WorkerFrame> found = frames();
  std::erase_if(found,
                [=](const wire::WorkerFrame& frame) { return !frame.has_push() || frame.push().shard() != shard; });
  return found;
}

bool FakeServer::AwaitFrame(wire::WorkerFrame::BodyCase body) const {
  absl::MutexLock lock(&mutex_);
  const auto arrived = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return std::any_of(frames_.begin(), frames_.end(),
                       [=](const wire::WorkerFrame& frame) { return frame.body_case() == body; });
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&arrived), absl::Seconds(20));
}

FakeServer::Verdict FakeServer::Look(const wire::WorkerFrame& frame, Stream& stream) {
  Hook hook;
  {
    absl::MutexLock lock(&mutex_);
    frames_.push_back(frame);
    hook = hook_;
  }
  return hook ? hook(frame, stream) : Verdict{};
}

grpc::Status FakeServer::Exchange(grpc::ServerContext*, Stream* stream) {
  wire::WorkerFrame frame;
  while (stream->Read(&frame)) {
    const Verdict verdict = Look(frame, *stream);
    if (verdict.end && !verdict.swallow) Handle(frame);  // done, but the answer is lost
    if (verdict.end) return *verdict.end;
    if (verdict.swallow) continue;
    for (const wire::ServerFrame& answer : Handle(frame)) stream->Write(answer);
  }
  return grpc::Status::OK;
}

std::vector<wire::ServerFrame> FakeServer::Handle(const wire::WorkerFrame& frame) {
  absl::MutexLock lock(&mutex_);
  std::vector<wire::ServerFrame> out;
  if (frame.has_hello()) out.push_back(Greet(frame.hello()));
  if (frame.has_push()) out = Take(frame);
  if (frame.has_pull()) Serve(frame.pull(), out);
  return out;
}

wire::ServerFrame FakeServer::Greet(const wire::Hello& hello) {
  wire::ServerFrame frame;
  wire::Welcome& welcome = *frame.mutable_welcome();
  welcome.set_window(1);
  welcome.set_chunk_bytes_max(chunk_bytes_);
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
  return frame;
}

std::vector<wire::ServerFrame> FakeServer::Take(const wire::WorkerFrame& frame) {
  const wire::PushChunk& chunk = frame.push();
  Shard& shard = shards_.at(chunk.shard());
  if (chunk.offset() == 0) shard.staged.clear();
  SLACKLINE_CHECK(chunk.offset() * sizeof(float) == shard.staged.size());
  shard.staged += frame.payload();
  if (!chunk.has_commit()) return {};
  SLACKLINE_CHECK(shard.staged.size() == shard.weights.size() * sizeof(float));
  std::vector<float> values(shard.weights.size());
  std::memcpy(values.data(), shard.staged.data(), shard.staged.size());

  wire::ServerFrame answer;
  answer.mutable_answer()->set_shard(chunk.shard());
  answer.mutable_answer()->set_sequence(chunk.sequence());
  answer.mutable_answer()->set_outcome(wire::OUTCOME_APPLIED);
  if (chunk.seed()) {
    if (shard.seeded) answer.mutable_answer()->set_outcome(wire::OUTCOME_DISCARDED);
    if (!shard.seeded) shard.weights = values;
    shard.seeded = true;
  } else if (chunk.sequence() > shard.answered) {
    for (size_t i = 0; i < values.size(); ++i) shard.weights[i] -= values[i];
    shard.answered = chunk.sequence();
    ++shard.version;
  }
  answer.mutable_answer()->mutable_version()->set_lineage(1);
  answer.mutable_answer()->mutable_version()->set_number(shard.version);
  answer.mutable_answer()->set_clock_min(shard.answered);
  std::vector<wire::ServerFrame> out = {answer};
  if (shard.waiting) Serve(*std::exchange(shard.waiting, std::nullopt), out);
  return out;
}

void FakeServer::Serve(const wire::Pull& pull, std::vector<wire::ServerFrame>& out) {
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
      wire::ServerFrame& frame = out.emplace_back();
      frame.mutable_pull()->set_id(pull.id());
      frame.mutable_pull()->set_shard(asked.shard());
      frame.mutable_pull()->set_offset(offset);
      *frame.mutable_pull()->mutable_version() = version;
      frame.set_payload(shard.weights.data() + offset, std::min(step, shard.weights.size() - offset) * sizeof(float));
    }
    wire::PullDone& done = *out.emplace_back().mutable_pull_done();
    done.set_id(pull.id());
    done.set_shard(asked.shard());
    *done.mutable_version() = version;
    done.set_unchanged(unchanged);
    done.set_clock_min(shard.answered);
  }
}

}  // namespace slackline::worker
