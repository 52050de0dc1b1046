// A server and its backup, joined by a stream that a test moves by hand.
#include <deque>
#include <memory>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/service/replica_log.h"
#include "ps/service/shard_table.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kElements = 3000;  // of a shard
constexpr uint32_t kShards = 2;
constexpr uint64_t kServer = 1, kBackup = 2;  // incarnations

// One stream: frames wait here until a test lets them through.
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

  static void SetMembers(ShardTable& table, uint64_t generation, uint64_t incarnation) {
    wire::SetMembersRequest members;
    members.set_job(7);
    members.set_generation(generation);
    members.set_server_incarnation(incarnation);
    members.set_epoch(generation);
    for (uint32_t worker = 1; worker <= 2; ++worker) {
      members.add_members()->set_worker(worker);
      members.mutable_members()->rbegin()->set_incarnation(10 + worker);
    }
    ASSERT_TRUE(table.SetMembers(members).ok());
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
  // `answered`: of shard 0, 1, ...
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
      // Longer than chunk_bytes_max allows in one piece.
      for (uint64_t begin = 0; begin < kElements; begin += 1000) {
        chunk.set_offset(begin);
        chunk.set_elements(1000);
        if (begin + 1000 == kElements) chunk.mutable_commit();
        Say(server_->table, 1, item, Floats(1000, 1));
      }
    }
  }
  // Of one worker to one shard, with values that only this push has.
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
      }
      Say(table, worker, item, Floats(values));
    }
  }
  void PushNow(uint32_t worker, uint32_t shard, uint64_t sequence) {
    Push(server_->table, worker, shard, sequence, VersionOf(server_->table));
  }
  // All shards are pushed alike.
  static Version VersionOf(ShardTable& table) { return {Lineage(1), table.progress().version_min}; }
  // Answers that the worker has got since the last call.
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
  // What the server has to send, as the backup gets it. Returns false where there is nothing.
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
  wire::BackupProgress progress() { return server_->table.progress().backup; }
  absl::Status Promote() {
    wire::InstallShardsRequest install = Install(kBackup, 2);
    install.set_restore_lineage(2);
    install.set_promote(true);
    return backup_->table.Install(install);
  }
  // Weights and optimizer state of all shards.
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
  std::map<uint32_t, std::unique_ptr<RecordingPeer>> peers_;
  std::unique_ptr<Side> server_, backup_;
  std::unique_ptr<Wire> wire_;
};

TEST_F(ReplicaTest, AnAnswerWaitsUntilTheBackupHasIt) {
  BringInStep();
  PushNow(1, 0, 1);
  EXPECT_THAT(Answers(1), IsEmpty());
  while (MoveFrame()) {
  }
  EXPECT_THAT(Answers(1), IsEmpty()) << "the backup has it, but the server has not heard so";
  Acknowledge();
  const std::vector<wire::PushAnswer> answers = Answers(1);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].outcome(), wire::OUTCOME_APPLIED);
}

TEST_F(ReplicaTest, NobodyGetsWeightsBeforeABackupHasThemOnce) {
  Hello(server_->table, 1);
  Seed();
  wire::WorkerItem pull;
  for (uint32_t shard = 0; shard < kShards; ++shard) pull.mutable_pull()->add_shards()->set_shard(shard);
  Say(server_->table, 1, pull);
  EXPECT_THAT(peer(1).replies, IsEmpty());
  ASSERT_TRUE(Attach().ok());
  MoveAll();
  EXPECT_THAT(peer(1).replies, SizeIs(kShards));
}

class ReplicaModes : public ReplicaTest, public testing::WithParamInterface<job::Consistency::Mode> {
 protected:
  ReplicaModes() : ReplicaTest(GetParam()) {}
};

// Random pushes of two workers, a backup that comes late, and a stream that is moved now and then.
TEST_P(ReplicaModes, WhoTakesOverHasTheSameBitsAndKnowsAllThatWasAnswered) {
  Hello(server_->table, 1);
  Hello(server_->table, 2);
  Seed();
  std::mt19937 random(5);
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> sent;             // by worker and shard
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, bool> answered;  // applied
  const auto hear = [&] {
    for (uint32_t worker = 1; worker <= 2; ++worker) {
      for (const wire::PushAnswer& answer : Answers(worker)) {
        if (answer.sequence() == 0) continue;
        answered[{worker, answer.shard(), answer.sequence()}] = answer.outcome() == wire::OUTCOME_APPLIED;
      }
    }
  };
  for (int round = 0; round < 400; ++round) {
    const uint32_t worker = 1 + random() % 2, shard = random() % kShards;
    uint64_t& last = sent[{worker, shard}];
    hear();
    // The window: at most two are unanswered.
    if (last < 2 || answered.contains({worker, shard, last - 1})) PushNow(worker, shard, ++last);
    if (round == 50) {
      ASSERT_TRUE(Attach().ok());
    }
    if (round > 50 && random() % 3 == 0) MoveFrame();
    if (round > 50 && random() % 5 == 0) Acknowledge();
    time_.Advance(absl::Milliseconds(1));
    server_->table.Tick();
  }
  MoveAll();
  hear();
  ASSERT_TRUE(progress().in_step());
  EXPECT_GT(answered.size(), 100u);
  const std::vector<std::vector<float>> before = Numbers(server_->table);

  ASSERT_TRUE(Promote().ok());
  EXPECT_FALSE(backup_->follows);
  EXPECT_EQ(Numbers(backup_->table), before);
  SetMembers(backup_->table, 2, kBackup);
  generation_ = 2;
  for (uint32_t worker = 1; worker <= 2; ++worker) {
    server_->table.Closed(peer(worker));
    std::vector<uint64_t> heard(kShards);
    for (const auto& [push, applied] : answered) {
      const auto& [who, shard, sequence] = push;
      if (who == worker) heard[shard] = std::max(heard[shard], sequence);
    }
    Hello(backup_->table, worker, heard);
    const wire::Welcome welcome = peer(worker).items.front().welcome();
    for (const wire::ShardState& state : welcome.shards()) {
      EXPECT_EQ(state.lost(), 0u);
      EXPECT_EQ(state.version().lineage(), 2u);
      // What was answered is known, and nothing that was not sent.
      const uint64_t last = sent[{worker, state.shard()}];
      EXPECT_LE(state.last_answered(), last);
      for (uint64_t sequence = state.last_answered() + 1; sequence <= last; ++sequence) {
        EXPECT_FALSE(answered.contains({worker, state.shard(), sequence})) << sequence;
      }
      // The same push again gets the same answer, and changes nothing.
      const auto known = answered.find({worker, state.shard(), state.last_answered()});
      if (known == answered.end()) continue;
      peer(worker).items.clear();
      Push(backup_->table, worker, state.shard(), state.last_answered(), {Lineage(1), 0});
      const std::vector<wire::PushAnswer> again = Answers(worker);
      ASSERT_THAT(again, SizeIs(1));
      EXPECT_EQ(again[0].outcome() == wire::OUTCOME_APPLIED, known->second);
      break;
    }
  }
  EXPECT_EQ(Numbers(backup_->table), before);
}

INSTANTIATE_TEST_SUITE_P(All, ReplicaModes,
                         testing::Values(job::Consistency::ASYNC, job::Consistency::SSP, job::Consistency::BSP,
                                         job::Consistency::QUORUM),
                         [](const auto& info) { return job::Consistency::Mode_Name(info.param); });

// At whatever item the stream ends, a step is there with its answers or not at all.
TEST_F(ReplicaTest, AStepAndItsAnswerComeTogether) {
  BringInStep();
  PushNow(1, 0, 1);
  // The step, without the answer that follows it.
  wire::ReplicaFrame frame;
  std::vector<rpc::Attachment> pieces;
  ASSERT_TRUE(server_->table.log()->NextFrame(*wire_, frame, pieces));
  ASSERT_TRUE(frame.items().rbegin()->has_answer());
  frame.mutable_items()->RemoveLast();
  ASSERT_TRUE(frame.items().rbegin()->has_step());
  wire::ReplicaFrame header;
  const auto payload = rpc::Parse(rpc::Build(frame, absl::MakeSpan(pieces)), header);
  ASSERT_TRUE(backup_->table.Follow(header, *payload).ok());

  ASSERT_TRUE(Promote().ok());
  SetMembers(backup_->table, 2, kBackup);
  generation_ = 2;
  server_->table.Closed(peer(1));
  peer(1).items.clear();
  Hello(backup_->table, 1);
  Push(backup_->table, 1, 0, 1, {Lineage(1), 0});
  const std::vector<wire::PushAnswer> again = Answers(1);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].outcome(), wire::OUTCOME_APPLIED) << "it is in the weights";
}

TEST_F(ReplicaTest, WithoutItsBackupAServerAnswersNobodyUntilItIsReleased) {
  BringInStep();
  PushNow(1, 0, 1);
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  PushNow(1, 1, 1);
  PushNow(2, 0, 1);
  EXPECT_THAT(Answers(1), IsEmpty());
  EXPECT_TRUE(progress().lost());
  EXPECT_TRUE(progress().in_step()) << "it may take over";

  // It may not come back either: what it has is worth something.
  EXPECT_TRUE(absl::IsUnavailable(Attach()));
  server_->table.log()->Released(progress().attachment() - 1);
  EXPECT_THAT(Answers(1), IsEmpty()) << "released from an earlier one";
  server_->table.log()->Released(progress().attachment());
  EXPECT_THAT(Answers(1), SizeIs(2));
  EXPECT_THAT(Answers(2), SizeIs(1));
  PushNow(2, 1, 1);
  EXPECT_THAT(Answers(2), SizeIs(1)) << "alone, it answers at once";

  ASSERT_TRUE(Attach().ok());
  MoveAll();
  EXPECT_TRUE(progress().in_step());
  ASSERT_TRUE(Promote().ok());
  EXPECT_EQ(Numbers(backup_->table), Numbers(server_->table));
}

TEST_F(ReplicaTest, ABackupThatWasNeverInStepHoldsUpNobody) {
  Hello(server_->table, 1);
  Seed();
  ASSERT_TRUE(Attach().ok());
  MoveFrame();
  Answers(1);
  PushNow(1, 0, 1);
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  EXPECT_THAT(Answers(1), SizeIs(1));
  EXPECT_EQ(Promote().code(), absl::StatusCode::kDataLoss);
  // Nothing has changed by that.
  ASSERT_TRUE(Attach().ok());
  MoveAll();
  EXPECT_TRUE(progress().in_step());
}

// A server that was stopped while its backup took over must not show old weights.
TEST_F(ReplicaTest, PullsAreServedOnlyWhileTheBackupIsHeard) {
  BringInStep();
  const auto pull = [&](uint32_t worker, uint64_t id) {
    wire::WorkerItem item;
    item.mutable_pull()->set_id(id);
    item.mutable_pull()->add_shards()->set_shard(0);
    Say(server_->table, worker, item);
    return std::exchange(peer(worker).replies, {}).size();
  };
  EXPECT_EQ(pull(1, 1), 1u);
  time_.Advance(Timeouts().lease() + absl::Milliseconds(1));
  EXPECT_EQ(pull(1, 2), 0u);
  // An echo of long ago says nothing.
  Acknowledge();
  server_->table.Tick();
  EXPECT_THAT(peer(1).replies, IsEmpty());
  server_->table.log()->Tick();
  MoveAll();
  EXPECT_THAT(peer(1).replies, SizeIs(1));
}

TEST_F(ReplicaTest, WhoTakesOverServesPullsWhenTheOtherOneCannotAnyMore) {
  BringInStep();
  ASSERT_TRUE(Promote().ok());
  SetMembers(backup_->table, 2, kBackup);
  generation_ = 2;
  server_->table.Closed(peer(1));
  Hello(backup_->table, 1);
  wire::WorkerItem item;
  item.mutable_pull()->add_shards()->set_shard(0);
  peer(1).replies.clear();
  Say(backup_->table, 1, item);
  EXPECT_THAT(peer(1).replies, IsEmpty());
  time_.Advance(Timeouts().lease() + absl::Milliseconds(1));
  backup_->table.Tick();
  EXPECT_THAT(peer(1).replies, SizeIs(1));
}

TEST_F(ReplicaTest, ABackupTakesNoFramesOfWorkersAndNoMembers) {
  BringInStep();
  wire::WorkerFrame frame;
  frame.set_job(7);
  frame.set_generation(1);
  frame.add_items()->mutable_hello()->set_role(wire::ROLE_READER);
  RecordingPeer reader;
  const auto end = backup_->table.Receive(reader, frame, rpc::Payload());
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(end->message(), HasSubstr("is the backup of another"));
  EXPECT_TRUE(absl::IsUnavailable(backup_->table.SetMembers(wire::SetMembersRequest()).status()));
}

TEST_F(ReplicaTest, ASilentBackupIsLost) {
  BringInStep();
  time_.Advance(Timeouts().worker_dead() + absl::Milliseconds(1));
  server_->table.log()->Tick();
  EXPECT_TRUE(progress().lost());
  ASSERT_TRUE(wire_->ended.has_value());
  EXPECT_THAT(wire_->ended->message(), HasSubstr("silent"));
}

// Whoever waits for it must not take the server for dead.
TEST_F(ReplicaTest, WhoWaitsForAnAnswerIsToldWhy) {
  BringInStep();
  PushNow(1, 0, 1);
  const auto notices = [&] {
    std::string text;
    for (const wire::ServerItem& item : std::exchange(peer(1).items, {})) text += item.waiting().message();
    return text;
  };
  time_.Advance(Timeouts().notice());
  server_->table.log()->Tick();
  EXPECT_THAT(notices(), HasSubstr("shard 0 has an answer and waits for the backup to have what was before it"));
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  server_->table.log()->Tick();
  EXPECT_EQ(notices(), "") << "it was just told";
  time_.Advance(Timeouts().notice());
  server_->table.log()->Tick();
  EXPECT_THAT(notices(), HasSubstr("waits for the scheduler to say that the backup"));
}

// A worker that repeats itself while it waits costs nothing.
TEST_F(ReplicaTest, WhatIsSaidAgainWaitsOnce) {
  BringInStep();
  PushNow(1, 0, 1);
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  for (int i = 0; i < 50; ++i) Push(server_->table, 1, 0, 1, {Lineage(1), 0});
  Push(server_->table, 1, 0, 2, {Lineage(1), 0});
  wire::WorkerItem third;
  third.mutable_push()->set_sequence(3);
  third.mutable_push()->set_elements(1000);
  Say(server_->table, 1, third, Floats(1000, 1));
  EXPECT_THAT(peer(1).Take().refused().message(),
              HasSubstr("push 3: pushes from 1 on are unanswered, the window allows 2"));
  server_->table.log()->Released(progress().attachment());
  EXPECT_THAT(Answers(1), SizeIs(2));
}

TEST_F(ReplicaTest, ACopyThatHasOtherWeightsBeginsAnew) {
  BringInStep();
  PushNow(1, 0, 1);
  MoveAll();
  time_.Advance(absl::Seconds(11));
  Acknowledge();  // it is not silent
  server_->table.log()->Tick();
  wire::ReplicaFrame frame;
  std::vector<rpc::Attachment> pieces;
  ASSERT_TRUE(server_->table.log()->NextFrame(*wire_, frame, pieces));
  ASSERT_TRUE(frame.items(0).has_check());
  EXPECT_TRUE(backup_->table.Follow(frame, rpc::Payload()).ok());
  frame.mutable_items(0)->mutable_check()->set_checksum(frame.items(0).check().checksum() + 1);
  EXPECT_THAT(backup_->table.Follow(frame, rpc::Payload()).message(),
              HasSubstr("shard 0 is at version 1.1 with checksum"));
}

TEST_F(ReplicaTest, StrangersAndLiarsAreTurnedAway) {
  BringInStep();
  Wire other;
  wire::BackupHello hello;
  hello.set_job(8);
  EXPECT_TRUE(absl::IsFailedPrecondition(server_->table.AttachBackup(other, hello)));
  hello.set_job(7);
  hello.set_server(1);
  hello.set_server_incarnation(99);
  EXPECT_THAT(server_->table.AttachBackup(other, hello).message(), HasSubstr("incarnation 99"));
  server_->table.log()->Detached(*wire_, absl::UnavailableError("broken"));
  server_->table.log()->Released(progress().attachment());
  hello.set_server_incarnation(kServer);
  hello.set_backup_incarnation(kBackup - 1);
  EXPECT_THAT(server_->table.AttachBackup(other, hello).message(), HasSubstr("that of incarnation 2 was here already"));
  ASSERT_TRUE(Attach().ok());
  ReplicaLog& log = *server_->table.log();
  EXPECT_TRUE(absl::IsInvalidArgument(log.Handled(*wire_, 1'000'000, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(log.Handled(*wire_, 1, UINT64_MAX / 2)));
}

TEST_F(ReplicaTest, WhatMakesNoSenseEndsTheStream) {
  BringInStep();
  const auto follow = [&](const wire::ReplicaItem& item) {
    wire::ReplicaFrame frame;
    *frame.add_items() = item;
    return backup_->table.Follow(frame, rpc::Payload());
  };
  wire::ReplicaItem item;
  EXPECT_THAT(follow(item).message(), HasSubstr("without a body"));
  item.mutable_step()->set_shard(9);
  EXPECT_THAT(follow(item).message(), HasSubstr("shard 9 is not here"));
  item.mutable_step()->set_shard(0);
  EXPECT_THAT(follow(item).message(), HasSubstr("without all of its gradient"));
  item.mutable_array()->set_shard(0);
  EXPECT_THAT(follow(item).message(), HasSubstr("has its base already"));
  item.mutable_bytes()->set_elements(kElements);
  EXPECT_THAT(follow(item).message(), HasSubstr("payload has 0 bytes"));
  item.set_payload_bytes(4);
  EXPECT_THAT(follow(item).message(), HasSubstr("claims 4 bytes"));
}

}  // namespace
}  // namespace slackline::ps
