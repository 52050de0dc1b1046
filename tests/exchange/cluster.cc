#include "tests/exchange/cluster.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/channel.h"
#include "gtest/gtest.h"
#include "worker/base/step_memory.h"

namespace slackline {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr Timeouts kTimeouts = {.heartbeat = absl::Milliseconds(kSanitized ? 200 : 50)};

job::Job MakeJob(const ClusterShape& shape) {
  job::Job job;
  job.mutable_optimizer()->set_lr(Cluster::kLearningRate);
  job.mutable_training()->set_batch_size(1);
  job.mutable_consistency()->set_mode(shape.mode);
  job.mutable_consistency()->set_staleness_max(1);
  job.mutable_wire()->set_chunk_bytes(4096);
  job.mutable_wire()->set_window(shape.window);
  job.mutable_cluster()->set_workers(shape.workers);
  job.mutable_limits();
  if (shape.change) shape.change(job);
  return job;
}

worker::SameHost ToSameHost(Path path) {
  return path == Path::kTcp    ? worker::SameHost::kTcp
         : path == Path::kUnix ? worker::SameHost::kUnix
                               : worker::SameHost::kSharedMemory;
}

worker::PushInfo OneSample() {
  worker::PushInfo info;
  info.samples = 1;
  return info;
}

std::unique_ptr<grpc::ClientContext> Patience() { return rpc::ContextWithTimeout(absl::Seconds(20)); }

}  // namespace

std::string Name(Path path) { return path == Path::kTcp ? "tcp" : path == Path::kUnix ? "unix" : "shared_memory"; }

std::optional<Path> ToPath(const std::string& name) {
  for (const Path path : kPaths) {
    if (Name(path) == name) return path;
  }
  return std::nullopt;
}

std::string Name(job::Consistency::Mode mode) { return absl::AsciiStrToLower(job::Consistency::Mode_Name(mode)); }

std::string Words(Path path) {
  return path == Path::kTcp ? "over TCP" : path == Path::kUnix ? "over a Unix socket" : "over shared memory";
}

worker::ClientOptions WorkerOptions(uint32_t number, Path path) {
  worker::ClientOptions options;
  options.job = Cluster::kJob;
  options.worker = WorkerId(number);
  options.incarnation = Incarnation(100 + number);
  options.same_host = ToSameHost(path);
  options.timeouts = kTimeouts;
  return options;
}

std::string ToLine(const worker::ServerInfo& server) {
  return absl::StrJoin({server.address, server.host, server.socket, server.memory_socket}, "\t");
}

worker::ServerInfo ToServer(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  EXPECT_EQ(fields.size(), 4) << line;
  if (fields.size() != 4) return {};
  return {ServerId(1), "ps-1", fields[0], fields[1], fields[2], fields[3]};
}

worker::ShardMap MapOf(const worker::ServerInfo& server, uint64_t elements, uint32_t shards) {
  worker::ShardMap map;
  map.generation = Cluster::kGeneration;
  map.servers = {server};
  for (uint32_t shard = 0; shard < shards; ++shard) {
    map.shards.push_back({ShardId(shard), shard * elements / shards, (shard + 1) * elements / shards, server.server});
  }
  map.elements = map.trained_elements = elements;
  return map;
}

Cluster::Cluster(const ClusterShape& shape) : shape_(shape), timeouts_(kTimeouts) {
  timeouts_.heartbeat = shape.heartbeat.value_or(kTimeouts.heartbeat);
  map_.generation = kGeneration;
  for (uint32_t index = 0; index < shape.servers; ++index) AddServer();
  for (const uint64_t elements : shape.shards) {
    const auto id = static_cast<uint32_t>(map_.shards.size());
    map_.shards.push_back({ShardId(id), map_.elements, map_.elements + elements, ServerId(id % shape.servers + 1)});
    map_.elements += elements;
  }
  map_.trained_elements = map_.elements - shape.averaged - shape.frozen;
  if (shape.frozen > 0) map_.frozen_from = map_.elements - shape.frozen;
  for (size_t index = 0; index < servers_.size(); ++index) Install(index);
  std::vector<uint32_t> members(shape.workers);
  std::iota(members.begin(), members.end(), 1);
  SetMembers(members);
}

Cluster::~Cluster() = default;

size_t Cluster::AddServer() {
  const size_t index = servers_.size();
  servers_.push_back(std::make_unique<Server>());
  worker::ServerInfo& info = map_.servers.emplace_back();
  info.server = ServerId(static_cast<uint32_t>(index + 1));
  info.name = "ps-" + std::to_string(index + 1);
  info.generation = kGeneration;
  Listen(index);
  return index;
}

template <typename Request>
void Cluster::SetParts(Request& request) const {
  request.set_trained_elements(map_.trained_elements);
  request.set_frozen_from(map_.frozen_from);
  request.set_samples_per_epoch(100);
  for (size_t i = 0; i < shape_.groups.size(); ++i) {
    wire::GroupRange& range = *request.add_groups();
    range.set_begin(shape_.groups[i].first);
    range.set_end(shape_.groups[i].second);
    range.set_group(static_cast<uint32_t>(i));
  }
}

void Cluster::BeginMove(size_t from, size_t to, const std::vector<uint32_t>& shards) {
  wire::TakeShardsRequest request;
  request.set_job(kJob.value());
  request.set_server(static_cast<uint32_t>(to + 1));
  request.set_move(++moves_);
  SetParts(request);
  request.mutable_from()->set_name(map_.servers[from].name);
  request.mutable_from()->set_address(map_.servers[from].address);
  request.mutable_from()->set_server(static_cast<uint32_t>(from + 1));
  for (const uint32_t shard : shards) {
    wire::ShardSpec& spec = *request.add_shards();
    spec.set_shard(shard);
    spec.set_begin(map_.shards[shard].begin);
    spec.set_end(map_.shards[shard].end);
  }
  wire::TakeShardsReply reply;
  ExpectTaken([&] { return servers_[to]->control->TakeShards(Patience().get(), request, &reply); });
  EXPECT_TRUE(Eventually([&] {
    const wire::BackupProgress now = progress(from).report.backup();
    return now.move() == moves_ && now.in_step() && !now.lost();
  })) << "not in step";
}

void Cluster::MoveShards(size_t from, size_t to, const std::vector<uint32_t>& shards) {
  BeginMove(from, to, shards);
  map_.generation = map_.generation.Next();
  for (const uint32_t shard : shards) map_.shards[shard].server = map_.servers[to].server;
  for (const size_t index : {from, to}) {
    map_.servers[index].generation = map_.generation;
    Install(index, /*restore=*/true, /*moves=*/true);
  }
  for (const size_t index : {from, to}) SendMembers(index);
}

void Cluster::Listen(size_t index) {
  Server& server = *servers_[index];
  worker::ServerInfo& info = map_.servers[index];
  ps::SequencerOptions options;
  options.job = MakeJob(shape_);
  options.timeouts = timeouts_;
  options.security = shape_.server_security;
  server.exchange = *ps::Sequencer::Start(options, server.metrics, time_);
  info.address = "127.0.0.1:" + std::to_string(server.exchange->port());
  info.host = server.exchange->local().host();
  info.socket = server.exchange->local().socket();
  info.memory_socket = server.exchange->local().memory_socket();
  server.control = wire::ParameterServerControl::NewStub(
      rpc::ControlChannel(info.address, shape_.scheduler_security.To(security::Role::kServer)));
  EXPECT_TRUE(server.exchange->SetIdentity({kJob, info.server}).ok());
}

void Cluster::ExpectTaken(const std::function<grpc::Status()>& call) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  grpc::Status status = call();
  while (!status.ok() && rpc::IsRetryable(rpc::FromGrpc(status)) && absl::Now() < deadline) status = call();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

void Cluster::StartServerAgain(size_t index) {
  map_.generation = map_.generation.Next();
  map_.servers[index].generation = map_.generation;
  Listen(index);
  Install(index, /*restore=*/true);
  SendMembers(index);
}

void Cluster::Install(size_t index, bool restore, bool moves) {
  wire::InstallShardsRequest request;
  request.set_job(kJob.value());
  request.set_generation(map_.servers[index].generation.value());
  request.set_snapshot_folder(shape_.snapshot_folder);
  if (restore) request.set_restore_lineage(static_cast<uint32_t>(map_.generation.value()));
  request.set_server(static_cast<uint32_t>(index + 1));
  SetParts(request);
  request.set_moves(moves);
  for (const worker::ShardInfo& shard : map_.shards) {
    if (shard.server != ServerId(static_cast<uint32_t>(index + 1))) continue;
    wire::ShardSpec& spec = *request.add_shards();
    spec.set_shard(shard.shard.value());
    spec.set_begin(shard.begin);
    spec.set_end(shard.end);
    spec.set_server(shard.server.value());
  }
  wire::InstallShardsReply reply;
  ExpectTaken([&] { return servers_[index]->control->InstallShards(Patience().get(), request, &reply); });
}

void Cluster::SetMembers(const std::vector<uint32_t>& workers) {
  members_.set_job(kJob.value());
  members_.set_epoch(members_.epoch() + 1);
  members_.clear_members();
  for (const uint32_t worker : workers) {
    wire::Member& member = *members_.add_members();
    member.set_worker(worker);
    member.set_incarnation(100 + worker);
  }
  for (size_t index = 0; index < servers_.size(); ++index) {
    if (servers_[index]->exchange != nullptr) SendMembers(index);
  }
}

void Cluster::SendMembers(size_t index) {
  members_.set_generation(map_.servers[index].generation.value());
  wire::SetMembersReply reply;
  ExpectTaken([&] { return servers_[index]->control->SetMembers(Patience().get(), members_, &reply); });
}

worker::ClientOptions Cluster::ClientOptions(uint32_t number) const {
  worker::ClientOptions options = WorkerOptions(number, shape_.path);
  options.early_bytes_min = 0;
  options.window = shape_.window;
  options.background = shape_.window <= 2;
  options.protection = shape_.worker_security.To(security::Role::kServer);
  options.on_notice = [number, notices = notices_](const std::string& text) {
    absl::MutexLock lock(&notices->mutex);
    notices->of[number].push_back(text);
  };
  return options;
}

ps::ShardTable::Progress Cluster::progress(size_t server) {
  absl::StatusOr<ps::ShardTable::Progress> progress;
  // The sequencer answers between two chunks or steps, which may take it longer than it may here.
  EXPECT_TRUE(Eventually([&] { return (progress = servers_[server]->exchange->progress()).ok(); }));
  return progress.ok() ? *progress : ps::ShardTable::Progress();
}

std::vector<std::string> Cluster::notices(uint32_t number) const {
  absl::MutexLock lock(&notices_->mutex);
  return notices_->of[number];
}

TestTrainer::TestTrainer(worker::ClientOptions options, const worker::ShardMap& map, bool shared)
    : parameters_(options.window, std::vector<float>(map.elements)) {
  if (shared) {
    worker::StepMemory memory(options.window, map.elements, /*shared=*/true);
    segment_ = memory.segment();
    memory_ = memory.parts();
    options.push_segment = segment_;
  } else {
    heap_.resize(options.window * map.elements);
    for (uint32_t part = 0; part < options.window; ++part) {
      memory_.emplace_back(heap_.data() + part * map.elements, map.elements);
    }
  }
  client_ = *worker::Client::Create(options, map);
}

void TestTrainer::Seed(absl::Span<const float> weights) {
  const absl::Status status = client_->Seed(weights, kLong);
  ASSERT_TRUE(status.ok()) << status;
}

void TestTrainer::Pull() {
  const absl::Status status = client_->Pull(parameters(), kLong);
  ASSERT_TRUE(status.ok()) << status;
}

void TestTrainer::BeginStep(absl::Span<const float> gradient) {
  const absl::Span<float> part = memory_[begun_ % memory_.size()];
  const absl::Span<float> parameters = absl::MakeSpan(parameters_[++begun_ % parameters_.size()]);
  absl::Status status = client_->OpenStep(part);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t from = gradient.size(); from > 0;) {
    const size_t end = from;
    from = random_() % 3 == 0 ? 0 : random_() % from;
    std::copy(gradient.begin() + from, gradient.begin() + end, part.begin() + from);
    if (random_() % 2 == 0) client_->Ready(from);
  }
  status = client_->CommitStep(OneSample(), parameters);
  ASSERT_TRUE(status.ok()) << status;
}

absl::StatusOr<worker::StepReport> TestTrainer::TryFinishStep(absl::Duration timeout) {
  ++finished_;
  return client_->FinishStep(timeout);
}

worker::StepReport TestTrainer::FinishStep() {
  const absl::StatusOr<worker::StepReport> report = TryFinishStep(kLong);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : worker::StepReport();
}

std::vector<float> RandomValues(size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 2049) - 1024) / 256;
  return values;
}

void StepPlainly(absl::Span<const float> gradient, float factor, std::vector<float>& weights) {
  for (size_t i = 0; i < weights.size(); ++i) weights[i] -= factor * gradient[i];
}

bool AllAre(float value, absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(), [=](float other) { return other == value; });
}

unsigned PrintedSeed() {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  return seed;
}

void ExpectToEnd(const std::function<void()>& what, const std::function<void()>& end_it) {
  constexpr absl::Duration kLongest = absl::Seconds(10);
  absl::Notification over;
  std::thread watch([&] {
    if (over.WaitForNotificationWithTimeout(kLongest)) return;
    ADD_FAILURE() << "no end within " << absl::FormatDuration(kLongest);
    end_it();
  });
  what();
  over.Notify();
  watch.join();
}

bool Eventually(const std::function<bool()>& what, absl::Duration timeout) {
  const SteadyTime time;
  const absl::Time deadline = time.Now() + timeout;
  while (!what()) {
    if (time.Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace slackline
