// Gradients that a device encodes, against the same gradients encoded on the host: equal bytes on the wire, equal
// weights. The device is a fake (host_device.h); all between it and the wire is what a group on GPUs has, too.
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/shm/host.h"
#include "tests/images/test_data.h"
#include "tests/worker/fake_server.h"
#include "tests/worker/host_device.h"
#include "tests/worker/scripted.h"
#include "worker/group/thread_group.h"
#include "worker/settings/push_codecs.h"

namespace slackline::worker::device_encoding_test {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

codec::Codec Parse(const std::string& text) { return codec::ParseCodec(text).value(); }

// --- The plan beside the buckets --------------------------------------------------------------------------------

TEST(ChunkPlan, BucketsOfEverySizeEncodeEachChunkOnceAndLeaveTheRestPlain) {
  std::mt19937 random(3);
  const auto below = [&](uint64_t most) { return random() % most; };
  for (int round = 0; round < 300; ++round) {
    const uint64_t elements = 1 + below(5000);
    std::vector<PlannedChunk> chunks;
    for (uint64_t next = below(40); next < elements;) {
      const uint64_t size = std::min(1 + below(700), elements - next);
      chunks.push_back({next, size, Parse(round % 2 == 0 ? "int8" : "topk:0.1"), false});
      next += size + (below(2) == 0 ? 0 : below(300));
    }
    const ChunkPlan plan(chunks);
    std::vector<int> seen(elements);
    std::vector<bool> encoded(chunks.size());
    uint64_t ready = elements;
    for (uint64_t from = elements; from > 0;) {
      const uint64_t to = from - std::min(from, 1 + below(900));
      const ChunkRange complete = plan.CompleteIn({to, from});
      for (size_t i = complete.begin; i < complete.end; ++i) {
        ASSERT_FALSE(encoded[i]);
        encoded[i] = true;
        for (uint64_t at = chunks[i].begin; at < chunks[i].end(); ++at) ++seen[at];
      }
      for (const Elements& plain : plan.PlainIn({to, from})) {
        ASSERT_LT(plain.begin, plain.end);
        for (uint64_t at = plain.begin; at < plain.end; ++at) ++seen[at];
      }
      from = to;
      ASSERT_LE(plan.ReadyFrom(from), ready);
      ready = plan.ReadyFrom(from);
      ASSERT_GE(ready, from);
      for (uint64_t at = ready; at < elements; ++at) ASSERT_EQ(seen[at], 1) << at << " of " << elements;
    }
    ASSERT_EQ(ready, 0);
    ASSERT_THAT(seen, testing::Each(1));
  }
}

TEST(ChunkPlan, BytesOfAChunkHaveRoomAndTheirOwnPlace) {
  const ChunkPlan plan(
      {{0, 1, Parse("bf16"), false}, {1, 1025, Parse("int8"), true}, {2000, 7, Parse("topk:1"), true}});
  EXPECT_EQ(plan.place(0), 0);
  EXPECT_EQ(plan.place(1), 16);
  EXPECT_EQ(plan.place(2), 16 + 1040);
  EXPECT_EQ(plan.count_place(0), 16 + 1040 + 64);
  EXPECT_EQ(plan.block_bytes(), plan.count_place(0) + 3 * 8);
  EXPECT_EQ(plan.elements_max(), 1025);
  std::vector<std::byte> block(plan.block_bytes());
  const uint64_t pairs = 5;
  std::memcpy(block.data() + plan.count_place(2), &pairs, sizeof(pairs));
  EXPECT_EQ(plan.SizeIn(block.data(), 0), 2);
  EXPECT_EQ(plan.SizeIn(block.data(), 1), 1025 + 8);
  EXPECT_EQ(plan.SizeIn(block.data(), 2), 40);
}

TEST(ChunkStore, BytesStayForAsLongAsTheyAreHeldAndBlocksAreUsedAgain) {
  int blocks = 0;
  ChunkStore store({.allocate =
                        [&](size_t bytes) {
                          ++blocks;
                          return absl::StatusOr<ChunkStore::Block>(std::make_shared<std::byte[]>(bytes));
                        },
                    .prepare = [](const ChunkPlan&) { return absl::OkStatus(); }});
  ASSERT_EQ(store.Plan({{0, 2, Parse("bf16"), true}}), absl::OkStatus());
  const std::vector<float> push(2);
  for (int step = 0; step < 5; ++step) *store.Begin(push.data()).value() = std::byte{1};
  EXPECT_EQ(blocks, 1);
  EncodedBytes held = store.Take(push.data(), 0);
  EXPECT_EQ(held.size, 4);
  for (int step = 0; step < 5; ++step) *store.Begin(push.data()).value() = std::byte{2};
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(held.bytes[0], std::byte{1}) << "gRPC still reads it";
  held = {};
  for (const float* other : {push.data(), push.data() + 1}) EXPECT_TRUE(store.Begin(other).ok());
  EXPECT_EQ(blocks, 2) << "two steps in flight";
}

TEST(ChunkStore, ADeviceWithoutMemoryLeavesNoPlan) {
  ChunkStore store({.allocate = [](size_t) { return std::make_shared<std::byte[]>(1); },
                    .prepare = [](const ChunkPlan&) { return absl::ResourceExhaustedError("full"); }});
  EXPECT_EQ(store.Plan({{0, 2, Parse("bf16"), true}}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.plan().empty());
}

// --- The client -------------------------------------------------------------------------------------------------

constexpr uint64_t kElements = 16'013, kBorder = 9'001;

struct Seen {
  std::vector<std::string> bytes[2];  // by shard, a chunk each
  std::vector<float> weights[2];
  std::vector<float> pulled;
  uint32_t discarded = 0;
  uint64_t pushed_bytes = 0;
};

// Steps through one server with two shards. Gradients come in pieces from the end, as from a group.
struct Steps {
  std::vector<CodecRun> runs;
  int steps = 8;
  std::map<int, std::pair<uint32_t, wire::DiscardReason>> discards = {};  // by step: which shard's push is
  int cut_step = -1;  // the stream breaks at its first chunk that is not the first of shard 0
  bool background = false;

  Seen Run(bool on_device) const {
    std::atomic<int> cuts = 1;
    FakeServer server({{0, kBorder}, {1, kElements - kBorder}});
    server.set_hook([&cuts](const wire::WorkerItem& item, FakeServer::Stream&) {
      const bool cut = item.has_push() && item.push().shard() == 0 && item.push().offset() > 0 && cuts++ == 0;
      return FakeServer::Verdict{cut ? std::optional(grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut"))
                                     : std::nullopt};
    });
    ShardMap map;
    map.generation = Generation(1);
    map.servers = {{.server = ServerId(1), .name = "ps-1", .address = server.address()}};
    map.shards = {{.shard = ShardId(0), .begin = 0, .end = kBorder, .server = ServerId(1)},
                  {.shard = ShardId(1), .begin = kBorder, .end = kElements, .server = ServerId(1)}};
    map.elements = map.trained_elements = kElements;
    ClientOptions options;
    options.job = JobId(42);
    options.worker = WorkerId(3);
    options.incarnation = Incarnation(9);
    options.chunk_bytes = 4096;
    options.early_bytes_min = 0;
    options.same_host = SameHost::kTcp;
    options.background = background;
    options.push_runs = runs;
    HostDevice device(kElements);
    if (on_device) {
      options.on_device = {&device.encoder(), PlanChunks(options, map)};
      SLACKLINE_CHECK(device.encoder().Plan(options.on_device.chunks).ok());
    }
    Seen seen;
    auto client = Client::Create(options, map);
    SLACKLINE_CHECK(client.ok());
    std::vector<float> push(kElements);
    seen.pulled.resize(kElements);
    EXPECT_EQ((*client)->Pull(absl::MakeSpan(seen.pulled), kLong), absl::OkStatus());
    std::mt19937 random(5);
    std::normal_distribution<float> gradient;
    for (int step = 0; step < steps; ++step) {
      if (const auto found = discards.find(step); found != discards.end()) {
        server.DiscardNext(found->second.first, found->second.second);
      }
      cuts = step == cut_step ? 0 : 1;
      EXPECT_EQ((*client)->OpenStep(push), absl::OkStatus());
      if (on_device) device.Begin(absl::MakeSpan(push));
      // Few values are far from all others, and many are 0.
      for (uint64_t from = kElements; from > 0;) {
        const uint64_t to = from - std::min<uint64_t>(from, 3'000);
        for (uint64_t i = to; i < from; ++i) push[i] = gradient(random) * (i % 7 == 0 ? 100 : i % 3 == 0 ? 0 : 1);
        from = to;
        (*client)->Ready(on_device ? device.Summed(from) : from);
      }
      PushInfo info;
      info.samples = 1;
      EXPECT_EQ((*client)->CommitStep(info, absl::MakeSpan(seen.pulled)), absl::OkStatus());
      const auto report = (*client)->FinishStep(kLong);
      EXPECT_TRUE(report.ok()) << report.status();
      if (!report.ok()) return seen;
      seen.discarded += report->shards_discarded;
      seen.pushed_bytes += report->pushed_bytes;
    }
    EXPECT_EQ(device.encoded() > 0, on_device);
    for (const uint32_t shard : {0, 1}) {
      seen.bytes[shard] = server.pushed_bytes(shard);
      // Whether a trailer goes with the last chunk or alone is up to the machine.
      std::erase(seen.bytes[shard], "");
      seen.weights[shard] = server.weights(shard);
    }
    return seen;
  }
};

void ExpectEqual(const Seen& got, const Seen& want, bool bytes = true) {
  for (const uint32_t shard : {0, 1}) {
    if (bytes) {
      ASSERT_EQ(got.bytes[shard].size(), want.bytes[shard].size());
      for (size_t i = 0; i < want.bytes[shard].size(); ++i) {
        ASSERT_TRUE(got.bytes[shard][i] == want.bytes[shard][i]) << "shard " << shard << ", chunk " << i;
      }
    }
    ASSERT_TRUE(got.weights[shard] == want.weights[shard]) << "shard " << shard;
  }
  EXPECT_TRUE(got.pulled == want.pulled);
  EXPECT_EQ(got.discarded, want.discarded);
  EXPECT_EQ(got.pushed_bytes, want.pushed_bytes);
}

using Case = std::tuple<const char*, bool>;

class DeviceEncodingTest : public testing::TestWithParam<Case> {
 protected:
  // A few plain elements among encoded ones, a run over the border of the shards, and plain ones at the end.
  Steps Make() const {
    const codec::Codec codec = Parse(std::get<0>(GetParam()));
    const bool feedback = std::get<1>(GetParam());
    return {.runs = {{4'001, codec, feedback}, {13, {}, false}, {11'000, codec, feedback}}};
  }
};

TEST_P(DeviceEncodingTest, BytesAndWeightsAreTheHosts) {
  const Steps steps = Make();
  ExpectEqual(steps.Run(true), steps.Run(false));
}

TEST_P(DeviceEncodingTest, DiscardedPushesReturnToTheSameResidual) {
  Steps steps = Make();
  steps.discards = {{1, {0, wire::DISCARD_LATE}}, {3, {1, wire::DISCARD_LATE}}, {4, {0, wire::DISCARD_OUTLIER}}};
  const Seen got = steps.Run(true);
  EXPECT_EQ(got.discarded, 3);
  ExpectEqual(got, steps.Run(false));
}

TEST_P(DeviceEncodingTest, WhatLeavesWhileTheRestIsMadeIsTheSame) {
  Steps steps = Make();
  steps.background = true;
  steps.discards = {{2, {1, wire::DISCARD_LATE}}};
  ExpectEqual(steps.Run(true), steps.Run(false));
}

TEST_P(DeviceEncodingTest, AStreamThatBreaksEncodesNothingAgain) {
  Steps steps = Make();
  steps.cut_step = 2;
  steps.discards = {{4, {0, wire::DISCARD_LATE}}};
  // How far the first attempt came is up to the machine.
  ExpectEqual(steps.Run(true), steps.Run(false), /*bytes=*/false);
}

INSTANTIATE_TEST_SUITE_P(Codecs, DeviceEncodingTest,
                         testing::Values(Case{"bf16", false}, Case{"bf16", true}, Case{"fp16", true},
                                         Case{"int8", false}, Case{"int8", true}, Case{"topk:0.03", true}),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)).substr(0, 4) +
                                  (std::get<1>(info.param) ? "WithFeedback" : "Alone");
                         });

TEST(PlanChunks, LeavesShardsOfServersThatMayReadFloatsToTheHost) {
  ShardMap map;
  map.servers = {
      {.server = ServerId(1), .name = "far", .address = ""},
      {.server = ServerId(2), .name = "near", .address = "", .host = shm::SocketScope(), .memory_socket = "there"}};
  map.shards = {{.shard = ShardId(0), .begin = 0, .end = 100, .server = ServerId(1)},
                {.shard = ShardId(1), .begin = 100, .end = 200, .server = ServerId(2)},
                {.shard = ShardId(2), .begin = 200, .end = 300, .server = ServerId(1)}};
  map.elements = map.trained_elements = 300;
  map.frozen_from = 260;
  ClientOptions options;
  options.chunk_bytes = 4096;
  options.push_runs = {{50, {}, false}, {250, Parse("int8"), true}};
  const std::vector<PlannedChunk> chunks = PlanChunks(options, map);
  EXPECT_THAT(chunks, testing::ElementsAre(PlannedChunk{50, 50, Parse("int8"), true},
                                           PlannedChunk{200, 60, Parse("int8"), true}));
  options.same_host = SameHost::kTcp;
  EXPECT_EQ(PlanChunks(options, map).size(), 3);
}

TEST(DeviceEncoding, AServerOfSmallerChunksIsRefused) {
  FakeServer server(std::map<uint32_t, uint64_t>{{0, 5000}});
  server.set_chunk_bytes(2048);
  ShardMap map;
  map.generation = Generation(1);
  map.servers = {{.server = ServerId(1), .name = "ps-1", .address = server.address()}};
  map.shards = {{.shard = ShardId(0), .begin = 0, .end = 5000, .server = ServerId(1)}};
  map.elements = map.trained_elements = 5000;
  HostDevice device(5000);
  ClientOptions options;
  options.chunk_bytes = 4096;
  options.same_host = SameHost::kTcp;
  options.push_runs = {{5000, Parse("bf16"), true}};
  options.on_device = {&device.encoder(), PlanChunks(options, map)};
  const auto client = Client::Create(options, map);
  std::vector<float> parameters(5000);
  const absl::Status status = (*client)->Pull(absl::MakeSpan(parameters), kLong);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("takes chunks of 2048 bytes; at least 4096"));
}

// --- The trainer ------------------------------------------------------------------------------------------------

constexpr uint64_t kTrained = 5'003, kAll = kTrained + 40;

// The gradient pulls each weight to a place that the images of the batch say; made from the end on, in odd pieces.
class PullingModel final : public Model {
 public:
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  uint64_t elements() const override { return kAll; }
  uint64_t trained_elements() const override { return kTrained; }
  absl::Span<float> parameters() override { return parameters_; }
  absl::Span<float> push() override { return push_; }
  void UsePush(absl::Span<float> memory) override { push_ = memory; }
  void UseParameters(absl::Span<float> memory) override { parameters_ = memory; }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override {
    int64_t sum = 0;
    for (const int64_t label : batch.labels) sum += label;
    for (uint64_t from = kAll; from > 0;) {
      const uint64_t to = from - std::min<uint64_t>(from, 777);
      for (uint64_t i = to; i < from; ++i) {
        push_[i] = 0.1f * (parameters_[i] - std::sin(static_cast<float>(i) + static_cast<float>(sum)));
      }
      ready(from = to);
    }
    return StepResult{.samples = batch.labels.size(), .loss = 1};
  }
  absl::StatusOr<StepResult> Evaluate(const BatchView&, absl::Span<int64_t>) override { return StepResult{}; }

 private:
  const std::vector<TensorInfo> tensors_ = {
      {.name = "weight", .shape = {kTrained - 100}},
      {.name = "bias", .shape = {100}, .offset = kTrained - 100},
      {.name = "mean", .shape = {kAll - kTrained}, .trained = false, .offset = kTrained}};
  std::vector<float> own_parameters_ = std::vector<float>(kAll), own_push_ = std::vector<float>(kAll);
  absl::Span<float> parameters_ = absl::MakeSpan(own_parameters_), push_ = absl::MakeSpan(own_push_);
};

// The scheduler's word of where the one server is.
class LinkToOne final : public ScriptedLink {
 public:
  explicit LinkToOne(const std::string& address) : address_(address) {}
  absl::StatusOr<ShardMap> GetShardMap() override {
    ShardMap map;
    map.generation = Generation(1);
    map.servers = {{.server = ServerId(1), .name = "ps-1", .address = address_}};
    map.shards = {{.shard = ShardId(0), .begin = 0, .end = 2'222, .server = ServerId(1)},
                  {.shard = ShardId(1), .begin = 2'222, .end = kAll, .server = ServerId(1)}};
    map.elements = kAll;
    map.trained_elements = kTrained;
    return map;
  }

 private:
  const std::string address_;
};

struct Trained {
  std::vector<std::string> bytes[2];
  std::vector<float> weights[2];
  std::vector<double> norms;
  uint64_t encoded = 0;
};

enum class Where { kHost, kDevice };

class DeviceTrainingTest : public testing::Test {
 protected:
  DeviceTrainingTest() {
    WriteFile(folder_ / "train-images-idx3-ubyte", Idx({40, 1, 1}, Bytes(40, 0)));
    Bytes labels;
    for (uint8_t i = 0; i < 40; ++i) labels.push_back(i % 10);
    WriteFile(folder_ / "train-labels-idx1-ubyte", Idx({40}, labels));
    options_.batch_size = 4;
    options_.chunk_bytes = 4096;
    options_.same_host = SameHost::kTcp;
  }

  // Two ranges of five batches each, with a discarded push in each.
  Trained Train(const std::string& codec, Where where, size_t devices) {
    const images::Dataset train = *images::Dataset::ReadIdx(folder_.path(), "train");
    images::Prefetcher prefetcher(train, images::Prefetcher::Normalisation{}, 2);
    Evaluator evaluator(train, {.normalisation = {}, .batch_size = 4, .class_names = std::vector<std::string>(10)});
    FakeServer server({{0, 2'222}, {1, kAll - 2'222}});
    int steps = 0;
    server.set_hook([&](const wire::WorkerItem& item, FakeServer::Stream&) {
      const bool last = item.has_push() && !item.push().seed() && item.push().has_commit();
      if (last && item.push().shard() == 0 && ++steps % 4 == 3) server.DiscardNext(0);
      return FakeServer::Verdict{};
    });
    std::vector<std::unique_ptr<Model>> models;
    for (size_t i = 0; i < devices; ++i) models.push_back(std::make_unique<PullingModel>());
    const GroupOptions group_options = {.buckets = {.first = 500, .each = 1'000}};
    auto group = std::make_unique<EncodingGroup>(std::make_unique<ThreadGroup>(std::move(models), group_options));
    options_.push_runs =
        MakeCodecRuns({.codec = Parse(codec), .groups = {{"bias", Parse("fp32")}}}, group->model().tensors()).value();
    HostGroup host(*group);
    LinkToOne link(server.address());
    link.work = {RangeWork{.range = RangeId(1), .begin = 0, .end = 20},
                 RangeWork{.range = RangeId(2), .begin = 20, .end = 40}};
    slackline::Metrics metrics;
    TrainerMetrics trainer_metrics(metrics);
    const SteadyTime time;
    Trainer trainer(options_, {.time = time,
                               .link = link,
                               .group = where == Where::kDevice ? static_cast<LocalGroup&>(*group) : host,
                               .train = train,
                               .prefetcher = prefetcher,
                               .evaluator = evaluator,
                               .metrics = trainer_metrics});
    EXPECT_EQ(trainer.Run(), absl::OkStatus());
    Trained trained;
    trained.encoded = group->encoded();
    for (const uint32_t shard : {0, 1}) {
      trained.bytes[shard] = server.pushed_bytes(shard);
      trained.weights[shard] = server.weights(shard);
    }
    for (const wire::WorkerItem& item : server.items()) {
      if (item.has_push() && item.push().has_commit()) trained.norms.push_back(item.push().commit().gradient_norm());
    }
    return trained;
  }

  // The same group, which does not say that it can encode.
  class HostGroup final : public LocalGroup {
   public:
    explicit HostGroup(LocalGroup& group) : group_(group) {}
    size_t devices() const override { return group_.devices(); }
    Model& model() override { return group_.model(); }
    absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override {
      return group_.Step(batch, ready);
    }

   private:
    LocalGroup& group_;
  };

  void ExpectTheHosts(const std::string& codec, size_t devices) {
    SCOPED_TRACE(codec);
    const Trained got = Train(codec, Where::kDevice, devices), want = Train(codec, Where::kHost, devices);
    EXPECT_GT(got.encoded, 0);
    EXPECT_EQ(want.encoded, 0);
    EXPECT_EQ(got.norms, want.norms);
    for (const uint32_t shard : {0, 1}) {
      EXPECT_TRUE(got.bytes[shard] == want.bytes[shard]) << "shard " << shard;
      EXPECT_TRUE(got.weights[shard] == want.weights[shard]) << "shard " << shard;
    }
  }

  const TemporaryFolder folder_;
  Trainer::Options options_;
};

TEST_F(DeviceTrainingTest, WeightsAreThoseOfTheHostsCodecs) {
  for (const char* codec : {"bf16", "fp16", "int8", "topk:0.05"}) ExpectTheHosts(codec, 1);
}

TEST_F(DeviceTrainingTest, ThreeDevicesPushWhatTheirSumEncodesTo) { ExpectTheHosts("int8", 3); }

TEST_F(DeviceTrainingTest, WhatIsMoreThanAGradientIsEncodedOnTheHost) {
  const Trainer::Options plain = options_;
  const std::vector<std::function<void()>> others = {
      [&] { options_.accumulate = 2; },
      [&] { options_.loss_scale = {.on = true}; },
      [&] { options_.local = {.steps = 2}; },
  };
  for (const auto& change : others) {
    options_ = plain;
    change();
    EXPECT_EQ(Train("int8", Where::kDevice, 1).encoded, 0);
  }
}

}  // namespace
}  // namespace slackline::worker::device_encoding_test
