// The client against a server made of generated code: the wire is as in protos/, and whatever breaks is repeated.
#include "worker/client/client.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/synchronization/notification.h"
#include "tests/worker/fake_server.h"

namespace slackline::worker::client_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr absl::Duration kShort = absl::Milliseconds(200);

// Two servers: shards 0 (3 elements) and 1 (2500) on the first, 2 (5) on the second.
class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    map_.generation = Generation(7);
    map_.servers = {{.server = ServerId(1), .name = "ps-1", .address = first_.address()},
                    {.server = ServerId(2), .name = "ps-2", .address = second_.address()}};
    map_.shards = {{.shard = ShardId(0), .begin = 0, .end = 3, .server = ServerId(1)},
                   {.shard = ShardId(1), .begin = 3, .end = 2503, .server = ServerId(1)},
                   {.shard = ShardId(2), .begin = 2503, .end = 2508, .server = ServerId(2)}};
    map_.elements = 2508;
    map_.trained_elements = 2508;
    options_.job = JobId(42);
    options_.worker = WorkerId(3);
    options_.incarnation = Incarnation(9);
    options_.first_clock = Clock64(10);
    parameters_.resize(map_.elements, -1);
    push_.resize(map_.elements);
    std::iota(push_.begin(), push_.end(), 1);
  }

  void Connect() {
    auto client = Client::Create(options_, map_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void ConnectAndPull() {
    Connect();
    ASSERT_EQ(client_->Pull(absl::MakeSpan(parameters_), kLong), absl::OkStatus());
  }
  absl::StatusOr<StepReport> Step(absl::Duration timeout = kLong) {
    PushInfo info;
    info.samples = 64;
    info.loss = 0.5;
    info.gradient_norm = 2;
    return client_->Step(push_, info, absl::MakeSpan(parameters_), timeout);
  }
  // Parameters after `steps` steps from 0.
  std::vector<float> Expected(float steps) const {
    std::vector<float> values(push_);
    for (float& value : values) value *= -steps;
    return values;
  }
  // Refuses the first push of shard 1 with `code`.
  void RefuseOnce(grpc::StatusCode code, uint64_t expected) {
    first_.set_hook([this, code, expected](const wire::WorkerItem& item, FakeServer::Stream& stream) {
      if (!item.has_push() || item.push().shard() != 1 || refusals_++ > 0) return FakeServer::Verdict{};
      wire::ServerFrame frame;
      wire::ServerItem& answer = *frame.add_items();
      answer.mutable_refused()->set_code(code);
      answer.mutable_refused()->set_message("for a test");
      answer.mutable_refused()->set_shard(1);
      answer.mutable_refused()->set_sequence(item.push().sequence());
      answer.mutable_refused()->set_expected_sequence(expected);
      stream.Write(frame);
      return FakeServer::Verdict{.end = std::nullopt, .swallow = true};
    });
  }

  FakeServer first_{{{0, 3}, {1, 2500}}};
  FakeServer second_{{{2, 5}}};
  ShardMap map_;
  ClientOptions options_;
  std::vector<float> parameters_, push_;
  std::atomic<int> refusals_ = 0;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, StepPushesToAllShardsAndBringsTheirWeights) {
  ConnectAndPull();
  EXPECT_THAT(parameters_, Each(0.0F));
  for (int step = 1; step <= 3; ++step) {
    const auto report = Step();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->clock, Clock64(10 + step));
    EXPECT_EQ(report->shards_applied, 3);
    EXPECT_EQ(parameters_, Expected(step));
  }
  const auto pushes = second_.pushes(2);
  ASSERT_EQ(pushes.size(), 3);
  EXPECT_EQ(second_.last_frame().job(), 42);
  EXPECT_EQ(second_.last_frame().generation(), 7);
  EXPECT_EQ(pushes[1].push().sequence(), 12);
  EXPECT_EQ(pushes[1].push().commit().samples(), 64);
  EXPECT_EQ(pushes[1].push().commit().loss(), 0.5);
  EXPECT_EQ(pushes[1].push().commit().gradient_norm(), 2);
  EXPECT_EQ(pushes[1].push().commit().base().number(), 1);
}

TEST_F(ClientTest, OnePullGoesFirstAndThenTheLastShardsArePushed) {
  ConnectAndPull();
  ASSERT_TRUE(Step().ok());
  const auto all = first_.items();
  EXPECT_EQ(all[0].hello().first_clock(), 10);
  const auto begin = std::find_if(all.begin(), all.end(), [](const auto& item) { return item.pull().clock() == 11; });
  const std::vector<wire::WorkerItem> items(begin, all.end());
  ASSERT_EQ(items.size(), 3);
  ASSERT_EQ(items[0].pull().shards_size(), 2);
  EXPECT_EQ(items[0].pull().shards(0).shard(), 0);
  EXPECT_EQ(items[1].push().shard(), 1);
  EXPECT_EQ(items[2].push().shard(), 0);
  EXPECT_TRUE(items[2].push().has_commit());
}

TEST_F(ClientTest, FirstShardsArePushedFirstWhereFirstLayersAreAwaitedFirst) {
  options_.first_layers_first = true;
  ConnectAndPull();
  ASSERT_TRUE(Step().ok());
  EXPECT_EQ(parameters_, Expected(1));
  std::vector<uint32_t> order;
  for (const wire::WorkerItem& item : first_.items()) {
    if (item.has_push()) order.push_back(item.push().shard());
  }
  EXPECT_THAT(order, ElementsAre(0, 1));
}

TEST_F(ClientTest, FirstShardsOvertakeThoseThatWaitInTheQueue) {
  // More than gRPC takes of a stream that is not read from.
  constexpr uint64_t kLarge = 4 << 20;
  FakeServer first({{0, 3}, {1, kLarge}});
  map_.servers[0].address = first.address();
  map_.shards[1].end = map_.shards[2].begin = 3 + kLarge;
  map_.elements = map_.trained_elements = map_.shards[2].end = 3 + kLarge + 5;
  parameters_.assign(map_.elements, -1);
  push_.assign(map_.elements, 1);
  options_.first_layers_first = true;
  options_.background = true;
  ConnectAndPull();
  const auto released = std::make_shared<absl::Notification>();
  first.set_hook([released](const wire::WorkerItem& item, FakeServer::Stream&) {
    if (item.has_push()) released->WaitForNotificationWithTimeout(kLong);
    return FakeServer::Verdict{};
  });
  ASSERT_EQ(client_->OpenStep(push_), absl::OkStatus());
  client_->Ready(3);
  ASSERT_TRUE(first.AwaitItem(wire::WorkerItem::kPush));
  ASSERT_EQ(client_->CommitStep({.samples = 64, .gradient_norm = 2}, absl::MakeSpan(parameters_)), absl::OkStatus());
  // The first server was spoken to before.
  ASSERT_TRUE(second_.AwaitItem(wire::WorkerItem::kPush));
  released->Notify();
  ASSERT_TRUE(client_->FinishStep(kLong).ok());
  EXPECT_EQ(parameters_, Expected(1));
  std::vector<uint32_t> order;
  for (const wire::WorkerItem& item : first.items()) {
    if (item.has_push()) order.push_back(item.push().shard());
  }
  EXPECT_EQ(std::count(order.begin(), order.end(), 0), 1);
  EXPECT_EQ(order.front(), 1) << "it was on its way";
  EXPECT_EQ(order.back(), 1) << "and its rest was overtaken";
  client_.reset();
}

// The second server says nothing of its shard before the test has read the shards of the first.
class PullByLayersTest : public ClientTest {
 protected:
  PullByLayersTest() {
    options_.background = true;
    options_.first_layers_first = true;
    second_.set_hook([released = released_](const wire::WorkerItem& item, FakeServer::Stream&) {
      if (item.has_push()) released->WaitForNotificationWithTimeout(kLong);
      return FakeServer::Verdict{};
    });
  }
  ~PullByLayersTest() override { Release(); }
  void Release() {
    if (!released_->HasBeenNotified()) released_->Notify();
  }
  void Commit() {
    ASSERT_EQ(client_->BeginStep(push_, {.samples = 64, .gradient_norm = 2}, absl::MakeSpan(parameters_)),
              absl::OkStatus());
  }

  // The server's thread may be the last to look at it.
  const std::shared_ptr<absl::Notification> released_ = std::make_shared<absl::Notification>();
};

TEST_F(PullByLayersTest, FirstLayersAreThereWhileTheLastAreAwaited) {
  ConnectAndPull();
  Commit();
  ASSERT_TRUE(client_->BeginFinish(kLong));
  EXPECT_FALSE(client_->BeginFinish(kLong)) << "once a step";
  const auto to = client_->AwaitPulled(1000);
  ASSERT_TRUE(to.ok()) << to.status();
  EXPECT_EQ(*to, 2503);
  const std::vector<float> expected = Expected(1);
  EXPECT_TRUE(std::equal(parameters_.begin(), parameters_.begin() + 2503, expected.begin()));
  EXPECT_EQ(parameters_[2503], 0) << "of the pull before";
  EXPECT_EQ(client_->steps_in_flight(), 1);
  Release();
  EXPECT_EQ(*client_->AwaitPulled(2508), 2508);
  EXPECT_EQ(parameters_, expected);
  const auto report = client_->FinishStep(kLong);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->clock, Clock64(11));
  EXPECT_EQ(report->shards_applied, 3);
  // The next one begins anew.
  Commit();
  ASSERT_TRUE(client_->BeginFinish(kLong));
  EXPECT_GE(*client_->AwaitPulled(3), 3);
  ASSERT_TRUE(client_->FinishStep(kLong).ok());
  EXPECT_EQ(parameters_, Expected(2));
}

TEST_F(PullByLayersTest, AWaitForALayerEndsWithTheExchange) {
  ConnectAndPull();
  Commit();
  ASSERT_TRUE(client_->BeginFinish(kLong));
  ASSERT_TRUE(client_->AwaitPulled(2503).ok());
  std::thread other([&] { client_->Cancel("the job is over"); });
  EXPECT_EQ(client_->AwaitPulled(2504).status(), absl::CancelledError("the job is over"));
  EXPECT_EQ(client_->FinishStep(kLong).status(), absl::CancelledError("the job is over"));
  other.join();
}

TEST_F(PullByLayersTest, ALayerThatDoesNotComeNamesItsServer) {
  ConnectAndPull();
  Commit();
  ASSERT_TRUE(client_->BeginFinish(kShort));
  const auto to = client_->AwaitPulled(2508);
  EXPECT_EQ(to.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(to.status().message(), HasSubstr("ps-2"));
}

TEST_F(PullByLayersTest, ThereAreNoneWithoutAThreadOrAStep) {
  ConnectAndPull();
  EXPECT_FALSE(client_->BeginFinish(kLong)) << "no step";
  EXPECT_EQ(client_->AwaitPulled(1).status().code(), absl::StatusCode::kFailedPrecondition);
  options_.background = false;
  ConnectAndPull();
  Commit();
  EXPECT_FALSE(client_->BeginFinish(kLong)) << "no thread";
  Release();
  EXPECT_TRUE(client_->FinishStep(kLong).ok());
}

TEST_F(ClientTest, LargeShardIsCutIntoChunksOfTheSmallerLimit) {
  options_.chunk_bytes = 4096;
  first_.set_chunk_bytes(1001 * 4 + 2);  // no whole number of elements
  ConnectAndPull();
  ASSERT_TRUE(Step().ok());
  EXPECT_EQ(parameters_, Expected(1));
  std::vector<uint64_t> offsets;
  for (const wire::WorkerItem& item : first_.pushes(1)) {
    offsets.push_back(item.push().offset());
    EXPECT_EQ(item.push().has_commit(), item.push().offset() == 2002);
  }
  EXPECT_THAT(offsets, ElementsAre(0, 1001, 2002));
}

TEST_F(ClientTest, PushWhoseAnswerWasLostIsRepeatedWithTheSameBytes) {
  ConnectAndPull();
  first_.set_hook([this](const wire::WorkerItem& item, FakeServer::Stream&) {
    const bool lose = item.has_push() && item.push().shard() == 1 && refusals_++ == 0;
    return FakeServer::Verdict{lose ? std::optional(grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")) : std::nullopt};
  });
  const auto report = Step();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->shards_applied, 3);
  EXPECT_EQ(parameters_, Expected(1));
  const auto pushes = first_.pushes(1);
  ASSERT_EQ(pushes.size(), 2);
  EXPECT_EQ(first_.pushed_bytes(1)[0], first_.pushed_bytes(1)[1]);
  EXPECT_EQ(pushes[0].push().sequence(), pushes[1].push().sequence());
  EXPECT_EQ(second_.pushes(2).size(), 1);  // the other stream was not disturbed
}

TEST_F(ClientTest, HelloOfANewStreamSaysWhatWasAnswered) {
  ConnectAndPull();
  ASSERT_TRUE(Step().ok());
  second_.set_hook([this](const wire::WorkerItem& item, FakeServer::Stream&) {
    const bool lose = item.has_push() && refusals_++ == 0;
    return FakeServer::Verdict{lose ? std::optional(grpc::Status(grpc::StatusCode::INTERNAL, "cut")) : std::nullopt};
  });
  ASSERT_TRUE(Step().ok());
  std::vector<wire::Hello> hellos;
  for (const wire::WorkerItem& item : second_.items()) {
    if (item.has_hello()) hellos.push_back(item.hello());
  }
  ASSERT_EQ(hellos.size(), 2);
  EXPECT_EQ(hellos[1].worker(), 3);
  EXPECT_EQ(hellos[1].incarnation(), 9);
  EXPECT_EQ(hellos[1].clock(), 11);
  EXPECT_EQ(hellos[1].shards(0).last_answered(), 11);
}

TEST_F(ClientTest, PushRefusedForNowIsRepeated) {
  ConnectAndPull();
  RefuseOnce(grpc::StatusCode::RESOURCE_EXHAUSTED, 0);
  const auto report = Step();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(parameters_, Expected(1));
  EXPECT_EQ(first_.pushes(1).size(), 2);
}

TEST_F(ClientTest, PushOutOfSequenceNamesBothNumbers) {
  ConnectAndPull();
  RefuseOnce(grpc::StatusCode::FAILED_PRECONDITION, 8);
  const absl::Status status = Step().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ps-1"), HasSubstr("push 11 of shard 1"),
                                                   HasSubstr("expects push 8"), HasSubstr("for a test")));
  EXPECT_EQ(Step().status(), status);  // the exchange has ended
}

TEST_F(ClientTest, RefusalForGoodFailsTheStepWithItsStatus) {
  ConnectAndPull();
  RefuseOnce(grpc::StatusCode::INVALID_ARGUMENT, 0);
  EXPECT_EQ(Step().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, FencedWorkerLearnsItFromTheEndOfTheStream) {
  ConnectAndPull();
  first_.set_hook([](const wire::WorkerItem&, FakeServer::Stream&) {
    return FakeServer::Verdict{grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "worker 3 was expelled")};
  });
  const absl::Status status = Step().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 3 was expelled"));
}

TEST_F(ClientTest, DeadlineNamesShardsServerAndCulprit) {
  ConnectAndPull();
  first_.set_hook([](const wire::WorkerItem& item, FakeServer::Stream& stream) {
    if (!item.has_pull() && !item.has_push()) return FakeServer::Verdict{};
    wire::ServerFrame frame;
    wire::ServerItem& answer = *frame.add_items();
    answer.mutable_waiting()->set_shard(1);
    answer.mutable_waiting()->set_message("awaiting worker-5 at clock 4");
    if (item.has_push()) stream.Write(frame);
    return FakeServer::Verdict{.end = std::nullopt, .swallow = true};
  });
  const absl::Status status = Step(kShort).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("step 11"), HasSubstr("ps-1"), HasSubstr("shard 0, 1"),
                                                   HasSubstr("awaiting worker-5 at clock 4")));
}

TEST_F(ClientTest, DeadServerIsNamedWithTheReason) {
  ConnectAndPull();
  second_.Stop();
  const absl::Status status = Step(kShort).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ps-2"), HasSubstr("no stream to it")));
}

TEST_F(ClientTest, FirstSeedIsKept) {
  Connect();
  ASSERT_EQ(client_->Seed(push_, kLong), absl::OkStatus());
  std::vector<float> others(push_.size(), 5);
  ASSERT_EQ(client_->Seed(others, kLong), absl::OkStatus());
  ASSERT_EQ(client_->Pull(absl::MakeSpan(parameters_), kLong), absl::OkStatus());
  EXPECT_EQ(parameters_, push_);
}

TEST_F(ClientTest, CancelEndsAWaitingStep) {
  ConnectAndPull();
  absl::Notification pulled;
  first_.set_hook([&](const wire::WorkerItem& item, FakeServer::Stream&) {
    if (item.has_pull()) pulled.Notify();
    return FakeServer::Verdict{.end = std::nullopt, .swallow = item.has_pull()};
  });
  std::thread other([&] {
    pulled.WaitForNotification();
    client_->Cancel("the job is over");
  });
  EXPECT_EQ(Step().status(), absl::CancelledError("the job is over"));
  other.join();
}

TEST_F(ClientTest, CloseSaysGoodbye) {
  ConnectAndPull();
  client_->Close("told to stop", kLong);
  EXPECT_EQ(first_.items().back().goodbye().reason(), "told to stop");
  EXPECT_EQ(second_.items().back().goodbye().reason(), "told to stop");
  EXPECT_EQ(Step().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClientTest, ReaderPullsAndNeverPushes) {
  options_.reader = true;
  options_.first_clock = Clock64(0);
  ConnectAndPull();
  EXPECT_EQ(first_.items().front().hello().role(), wire::ROLE_READER);
  EXPECT_EQ(Step().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, StepsInFlightFinishInTheirOrderEachWithItsOwnWeights) {
  options_.window = 2;
  ConnectAndPull();
  PushInfo info;
  info.samples = 64;
  const std::vector<float> second(push_.size(), 100);
  std::vector<float> after_first(push_.size(), -1), after_second(push_.size(), -1);
  ASSERT_EQ(client_->BeginStep(push_, info, absl::MakeSpan(after_first)), absl::OkStatus());
  ASSERT_EQ(client_->BeginStep(second, info, absl::MakeSpan(after_second)), absl::OkStatus());
  // The window is full.
  EXPECT_EQ(client_->OpenStep(push_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_->Pull(absl::MakeSpan(parameters_), kLong).code(), absl::StatusCode::kFailedPrecondition);
  auto report = client_->FinishStep(kLong);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->clock, Clock64(11));
  EXPECT_EQ(report->shards_applied, 3);
  EXPECT_EQ(after_first, Expected(1));
  report = client_->FinishStep(kLong);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->clock, Clock64(12));
  for (size_t i = 0; i < push_.size(); ++i) EXPECT_EQ(after_second[i], -push_[i] - 100) << i;
  EXPECT_THAT(parameters_, Each(0.0F));
  EXPECT_EQ(client_->FinishStep(kLong).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClientTest, ParametersOfAStepInFlightAreNotTakenForAnother) {
  options_.window = 2;
  ConnectAndPull();
  ASSERT_EQ(client_->BeginStep(push_, {.samples = 64}, absl::MakeSpan(parameters_)), absl::OkStatus());
  ASSERT_EQ(client_->OpenStep(push_), absl::OkStatus());
  EXPECT_EQ(client_->CommitStep({.samples = 64}, absl::MakeSpan(parameters_)).code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<float> others(parameters_.size());
  ASSERT_EQ(client_->CommitStep({.samples = 64}, absl::MakeSpan(others)), absl::OkStatus());
  ASSERT_TRUE(client_->FinishStep(kLong).ok());
  ASSERT_TRUE(client_->FinishStep(kLong).ok());
  EXPECT_EQ(others, Expected(2));
}

TEST_F(ClientTest, WeightsThatDidNotChangeAreTakenFromWhereTheyAre) {
  ConnectAndPull();
  ASSERT_TRUE(Step().ok());
  const std::vector<float> before = parameters_;
  std::vector<float> elsewhere(parameters_.size(), -1);
  ASSERT_EQ(client_->Pull(absl::MakeSpan(elsewhere), kLong), absl::OkStatus());
  EXPECT_EQ(elsewhere, before);
  EXPECT_EQ(second_.items().back().pull().shards(0).known().number(), 1);  // so that nothing was sent
}

// --- Pushes that leave while they are made -----------------------------------------------------------------------

TEST_F(ClientTest, ReadyShardsGoOutBeforeTheStepIsCommitted) {
  options_.early_bytes_min = 0;
  options_.background = true;
  ConnectAndPull();
  ASSERT_EQ(client_->OpenStep(push_), absl::OkStatus());
  client_->Ready(4);  // shard 1 is not whole
  ASSERT_TRUE(second_.AwaitItem(wire::WorkerItem::kPush));
  EXPECT_THAT(first_.pushes(1), IsEmpty());
  EXPECT_FALSE(second_.pushes(2).back().push().has_commit());
  client_->Ready(3);
  ASSERT_TRUE(first_.AwaitItem(wire::WorkerItem::kPush));
  EXPECT_EQ(client_->steps_in_flight(), 0);
  ASSERT_EQ(client_->CommitStep({.samples = 64, .gradient_norm = 3}, absl::MakeSpan(parameters_)), absl::OkStatus());
  ASSERT_TRUE(client_->FinishStep(kLong).ok());
  EXPECT_EQ(parameters_, Expected(1));
  const auto items = first_.pushes(1);
  ASSERT_EQ(items.size(), 2);
  EXPECT_EQ(items[0].push().elements(), 2500);
  EXPECT_EQ(items[1].push().offset(), 2500);
  EXPECT_EQ(items[1].push().elements(), 0);
  EXPECT_EQ(items[1].push().commit().gradient_norm(), 3);
}

TEST_F(ClientTest, WhatWentOutEarlyOnABrokenStreamGoesOutAgain) {
  options_.early_bytes_min = 0;
  options_.background = true;
  ConnectAndPull();
  first_.set_hook([this](const wire::WorkerItem& item, FakeServer::Stream&) {
    const bool early = item.has_push() && !item.push().has_commit();
    if (!early || refusals_++ > 0) return FakeServer::Verdict{};
    return FakeServer::Verdict{.end = grpc::Status(grpc::StatusCode::UNAVAILABLE, "for a test"), .swallow = true};
  });
  ASSERT_EQ(client_->OpenStep(push_), absl::OkStatus());
  client_->Ready(0);
  ASSERT_TRUE(first_.AwaitItem(wire::WorkerItem::kPush));
  ASSERT_EQ(client_->CommitStep({.samples = 64}, absl::MakeSpan(parameters_)), absl::OkStatus());
  ASSERT_TRUE(client_->FinishStep(kLong).ok());
  EXPECT_EQ(parameters_, Expected(1));
}

TEST_F(ClientTest, AStepIsOpenedOnceAndCommittedOnce) {
  ConnectAndPull();
  EXPECT_EQ(client_->CommitStep({}, absl::MakeSpan(parameters_)).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(client_->OpenStep(push_), absl::OkStatus());
  EXPECT_EQ(client_->OpenStep(push_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_->FinishStep(kLong).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_->Pull(absl::MakeSpan(parameters_), kLong).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClientTest, ChunkBeyondTheShardIsRefusedAndWritesNothing) {
  Connect();
  first_.set_hook([](const wire::WorkerItem& item, FakeServer::Stream& stream) {
    if (!item.has_pull()) return FakeServer::Verdict{};
    wire::ServerFrame frame;
    wire::ServerItem& answer = *frame.add_items();
    answer.mutable_pull()->set_id(item.pull().id());
    answer.mutable_pull()->set_elements(4);
    answer.set_payload_bytes(16);
    frame.set_payload(std::string(16, 'x'));  // shard 0 has 12 bytes
    stream.Write(frame);
    return FakeServer::Verdict{.end = std::nullopt, .swallow = true};
  });
  const absl::Status status = client_->Pull(absl::MakeSpan(parameters_), kLong);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ps-1"), HasSubstr("16 bytes"), HasSubstr("3 elements")));
  EXPECT_EQ(parameters_[0], -1);
}

TEST_F(ClientTest, ServerWithoutTheShardIsAFailedPrecondition) {
  map_.shards[2].server = ServerId(1);
  Connect();
  const absl::Status status = client_->Pull(absl::MakeSpan(parameters_), kLong);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not hold shard 2 of shard map generation 7"));
}

TEST_F(ClientTest, ServerOfAnotherProtocolIsRefusedByName) {
  first_.set_protocol(9, 0);
  Connect();
  const absl::Status status = client_->Pull(absl::MakeSpan(parameters_), kLong);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ps-1"), HasSubstr("speaks protocol 9.0")));
}

TEST_F(ClientTest, MapWithAGapIsRefused) {
  map_.shards[1].begin = 4;
  EXPECT_EQ(Client::Create(options_, map_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, StreamsThatComeAndGoAreNoticed) {
  absl::Mutex mutex;
  std::vector<std::string> notices;
  options_.on_notice = [&](const std::string& message) {
    absl::MutexLock lock(&mutex);
    notices.push_back(message);
  };
  ConnectAndPull();
  second_.set_hook([this](const wire::WorkerItem& item, FakeServer::Stream&) {
    const bool lose = item.has_push() && refusals_++ == 0;
    return FakeServer::Verdict{lose ? std::optional(grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")) : std::nullopt};
  });
  ASSERT_TRUE(Step().ok());
  client_.reset();
  EXPECT_THAT(notices, testing::Contains(HasSubstr("broken: UNAVAILABLE: cut")));
  EXPECT_THAT(notices, testing::Contains(AllOf(HasSubstr("ps-2"), HasSubstr("open again"))));
}

// Whether or not the pull that it names is awaited.
TEST_F(ClientTest, WeightsInSharedMemoryThatWasNotAgreedOnEndTheExchange) {
  first_.set_hook([](const wire::WorkerItem& item, FakeServer::Stream& stream) {
    if (!item.has_pull()) return FakeServer::Verdict{};
    wire::ServerFrame frame;
    wire::PullChunk& chunk = *frame.add_items()->mutable_pull();
    chunk.set_id(item.pull().id() + 77);
    chunk.set_elements(3);
    chunk.set_segment_offset(4);
    chunk.mutable_done()->set_id(chunk.id());
    stream.Write(frame);
    return FakeServer::Verdict{.end = std::nullopt, .swallow = true};
  });
  Connect();
  const absl::Status status = client_->Pull(absl::MakeSpan(parameters_), kLong);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a chunk in shared memory, which was not agreed on"));
}

}  // namespace
}  // namespace slackline::worker::client_test
