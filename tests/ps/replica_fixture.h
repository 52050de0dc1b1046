// A server and its backup, joined by a stream whose frames a test moves by hand.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ps/replication/replica_log.h"
#include "ps/service/shard_table.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::replica_test {
inline constexpr uint64_t kElements = 3000;  // elements of a shard
inline constexpr uint32_t kShards = 2;
inline constexpr uint64_t kServer = 1, kBackup = 2;  // incarnations

// The server's end of the stream. Frames wait here until a test moves them.
class Wire : public ReplicaSink {
 public:
  void Wake() override {}
  void End(const absl::Status& status) override { ended = status; }

  std::optional<absl::Status> ended;
};

class Side {
 public:
  Side(const job::Job& job, const TimeSource& time, uint64_t incarnation)
      : metrics(registry),
        table(job, Timeouts(), metrics, time,
              {.on_unpinned = nullptr,
               .on_seeded =
                   [this] {
                     if (table.log() != nullptr) table.log()->Seeded();
                   },
               .on_stores = nullptr,
               .on_cut = nullptr,
               .on_backup = [this](const wire::ReplicationSource* source) { follows = source != nullptr; }}) {
    table.SetIdentity({JobId(7), ServerId(1), Incarnation(incarnation)});
  }

  Metrics registry;
  ServiceMetrics metrics;
  bool follows = false;
  ShardTable table;
};

class ReplicaTest : public testing::Test {
 protected:
  explicit ReplicaTest(job::Consistency::Mode mode = job::Consistency::ASYNC) : job_(PlainJob(mode)) {
    job_.mutable_durability()->set_mode(job::Durability::REPLICATED);
    job_.mutable_optimizer()->set_kind(job::Optimizer::ADAMW);
    job_.mutable_optimizer()->set_lr(0.01);
    job_.mutable_wire()->set_window(2);
    Start();
  }
  ~ReplicaTest() override {
    for (auto& [id, peer] : peers_) {
      server_->table.Closed(*peer);
      backup_->table.Closed(*peer);
    }
  }

  void Start() {
    server_ = std::make_unique<Side>(job_, time_, kServer);
    backup_ = std::make_unique<Side>(job_, time_, kBackup);
    wire::InstallShardsRequest install = Install(kServer, 1);
    ASSERT_TRUE(server_->table.Install(install).ok());
    install = Install(kBackup, 1);
    install.mutable_backup_of()->set_name("ps-1");
    install.mutable_backup_of()->set_incarnation(kServer);
    ASSERT_TRUE(backup_->table.Install(install).ok());
    ASSERT_TRUE(backup_->follows);
    SetMembers(server_->table, 1, kServer);
  }

  static wire::InstallShardsRequest Install(uint64_t incarnation, uint64_t generation) {
    wire::InstallShardsRequest install;
    install.set_job(7);
    install.set_server(1);
    install.set_server_incarnation(incarnation);
    install.set_generation(generation);
    install.set_samples_per_epoch(100);
    install.set_trained_elements(kShards * kElements - 100);
    install.set_replicated(true);
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      wire::ShardSpec& spec = *install.add_shards();
      spec.set_shard(shard);
      spec.set_begin(shard * kElements);
      spec.set_end((shard + 1) * kElements);
    }
    return install;
  }

  // Worker n has incarnation 10 + n.
  static wire::SetMembersReply SetMembers(ShardTable& table, uint64_t generation, uint64_t incarnation,
                                          const std::vector<uint32_t>& workers = {1, 2}) {
    wire::SetMembersRequest members;
    members.set_job(7);
    members.set_generation(generation);
    members.set_server_incarnation(incarnation);
    members.set_epoch(generation);
    for (const uint32_t worker : workers) {
      members.add_members()->set_worker(worker);
      members.mutable_members()->rbegin()->set_incarnation(10 + worker);
    }
    const absl::StatusOr<wire::SetMembersReply> reply = table.SetMembers(members);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(wire::SetMembersReply());
  }

  // --- workers ---

  RecordingPeer& peer(uint32_t worker) {
    std::unique_ptr<RecordingPeer>& peer = peers_[worker];
    if (peer == nullptr) peer = std::make_unique<RecordingPeer>();
    return *peer;
  }
  void Say(ShardTable& table, uint32_t worker, const wire::WorkerItem& item, const std::string& bytes = "") {
    wire::WorkerFrame frame;
    frame.set_job(7);
    frame.set_generation(generation_);
    *frame.add_items() = item;
    frame.mutable_items(0)->set_payload_bytes(static_cast<uint32_t>(bytes.size()));
    const std::optional<absl::Status> end = table.Receive(peer(worker), frame, AsPayload(bytes));
    ASSERT_FALSE(end.has_value()) << *end;
  }
  // Says Hello to `table`. `answered` has the last answered sequences of shard 0, 1, ...
  void Hello(ShardTable& table, uint32_t worker, const std::vector<uint64_t>& answered = {}) {
    wire::WorkerItem item;
    wire::Hello& hello = *item.mutable_hello();
    hello.set_role(wire::ROLE_WORKER);
    hello.set_worker(worker);
    hello.set_incarnation(10 + worker);
    for (uint32_t shard = 0; shard < answered.size(); ++shard) {
      wire::ShardClock& clock = *hello.add_shards();
      clock.set_shard(shard);
      clock.set_last_answered(answered[shard]);
    }
    hello.set_window(2);
    Say(table, worker, item);
  }
  void Seed() {
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      wire::WorkerItem item;
      wire::PushChunk& chunk = *item.mutable_push();
      chunk.set_shard(shard);
      chunk.set_seed(true);
      // Shards are longer than chunk_bytes_max allows in one piece.
      for (uint64_t begin = 0; begin < kElements; begin += 1000) {
        chunk.set_offset(begin);
        chunk.set_elements(1000);
        if (begin + 1000 == kElements) chunk.mutable_commit();
        Say(server_->table, 1, item, Floats(1000, 1));
      }
    }
  }
  // Pushes to one shard as one worker, with values that only this push has.
  void Push(ShardTable& table, uint32_t worker, uint32_t shard, uint64_t sequence, Version base) {
    std::mt19937 random(static_cast<uint32_t>(sequence * 100 + worker * 10 + shard));
    std::normal_distribution<float> normal;
    for (uint64_t begin = 0; begin < kElements; begin += 1000) {
      std::vector<float> values(1000);
      for (float& value : values) value = normal(random);
      wire::WorkerItem item;
      wire::PushChunk& chunk = *item.mutable_push();
      chunk.set_shard(shard);
      chunk.set_sequence(sequence);
      chunk.set_offset(begin);
      chunk.set_elements(1000);
      if (begin + 1000 == kElements) {
        ToWire(base, *chunk.mutable_commit()->mutable_base());
        chunk.mutable_commit()->set_samples(3 + worker);
        chunk.mutable_commit()->set_gradient_norm(5);
        if (names_rates_) chunk.mutable_commit()->add_learning_rates(0.003 * (sequence % 5 + worker));
      }
      Say(table, worker, item, Floats(values));
    }
  }
  void PushNow(uint32_t worker, uint32_t shard, uint64_t sequence) {
    Push(server_->table, worker, shard, sequence, VersionOf(server_->table));
  }
  // Returns the version of all shards, which get the same number of pushes.
  static Version VersionOf(ShardTable& table) { return {Lineage(1), table.progress().report.version_min()}; }
  // Returns the answers that the worker has got since the last call.
  std::vector<wire::PushAnswer> Answers(uint32_t worker) {
    std::vector<wire::PushAnswer> answers;
    for (const wire::ServerItem& item : peer(worker).items) {
      EXPECT_FALSE(item.has_refused()) << item.refused().message();
      if (item.has_answer()) answers.push_back(item.answer());
    }
    peer(worker).items.clear();
    return answers;
  }

  // --- the stream ---

  absl::Status Attach() {
    wire_ = std::make_unique<Wire>();
    return server_->table.AttachBackup(*wire_, backup_->table.BeginFollowing().value());
  }
  // Moves the next frame that the server has to send to the backup. Returns false if there is none.
  bool MoveFrame() {
    wire::ReplicaFrame frame;
    std::vector<rpc::Attachment> pieces;
    if (!server_->table.log()->NextFrame(*wire_, frame, pieces)) return false;
    const grpc::ByteBuffer bytes = rpc::Build(frame, absl::MakeSpan(pieces));
    wire::ReplicaFrame header;
    const absl::StatusOr<rpc::Payload> payload = rpc::Parse(bytes, header);
    EXPECT_TRUE(payload.ok());
    const absl::Status followed = backup_->table.Follow(header, *payload);
    EXPECT_TRUE(followed.ok()) << followed;
    return true;
  }
  void Acknowledge() {
    const BackupFeed& feed = *backup_->table.feed();
    EXPECT_TRUE(server_->table.log()->Handled(*wire_, feed.handled(), feed.echo_us()).ok());
  }
  void MoveAll() {
    while (MoveFrame()) Acknowledge();
  }
  void BringInStep() {
    Hello(server_->table, 1);
    Hello(server_->table, 2);
    Seed();
    ASSERT_TRUE(Attach().ok());
    MoveAll();
    ASSERT_TRUE(progress().in_step());
    Answers(1);
  }
  wire::BackupProgress progress() { return server_->table.progress().report.backup(); }
  absl::Status Promote() {
    wire::InstallShardsRequest install = Install(kBackup, 2);
    install.set_restore_lineage(2);
    install.set_promote(true);
    return backup_->table.Install(install);
  }
  // Returns the weights and the optimizer state of all shards.
  static std::vector<std::vector<float>> Numbers(ShardTable& table) {
    std::vector<std::vector<float>> numbers;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      const ShardSnapshot snapshot = table.TakeSnapshot(ShardId(shard)).value();
      for (const SliceView& view : {snapshot.numbers.weights, snapshot.numbers.arrays[0], snapshot.numbers.arrays[1]}) {
        view.CopyTo(absl::MakeSpan(numbers.emplace_back(view.elements())));
      }
      numbers.push_back(
          {static_cast<float>(snapshot.numbers.progress.steps), static_cast<float>(snapshot.engine.samples_applied)});
    }
    return numbers;
  }

  job::Job job_;
  ManualTime time_;
  uint64_t generation_ = 1;
  bool names_rates_ = false;  // whether pushes name learning rates
  std::map<uint32_t, std::unique_ptr<RecordingPeer>> peers_;
  std::unique_ptr<Side> server_, backup_;
  std::unique_ptr<Wire> wire_;
};

}  // namespace slackline::ps::replica_test
