// The client's pushes that name learning rates, to servers that know of them and to older ones.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/base/protocol_version.h"
#include "tests/worker/fake_server.h"
#include "worker/client/client.h"

namespace slackline::worker::client_rates_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(20);

class ClientRatesTest : public testing::Test {
 protected:
  ClientRatesTest() {
    map_.generation = Generation(7);
    map_.servers = {{.server = ServerId(1), .name = "ps-1", .address = first_.address()},
                    {.server = ServerId(2), .name = "ps-2", .address = second_.address()}};
    map_.shards = {{.shard = ShardId(0), .begin = 0, .end = 3, .server = ServerId(1)},
                   {.shard = ShardId(1), .begin = 3, .end = 8, .server = ServerId(2)}};
    map_.elements = map_.trained_elements = 8;
  }

  void ConnectAndPull() {
    ClientOptions options;
    options.job = JobId(42);
    options.worker = WorkerId(3);
    options.incarnation = Incarnation(9);
    auto client = Client::Create(options, map_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    ASSERT_EQ(client_->Pull(absl::MakeSpan(parameters_), kLong), absl::OkStatus());
  }
  absl::Status Step(const std::vector<double>& rates) {
    PushInfo info;
    info.samples = 1;
    info.learning_rates = rates;
    return client_->Step(push_, info, absl::MakeSpan(parameters_), kLong).status();
  }

  FakeServer first_{{{0, 3}}};
  FakeServer second_{{{1, 5}}};
  ShardMap map_;
  std::vector<float> push_ = std::vector<float>(8, 1), parameters_ = std::vector<float>(8);
  std::unique_ptr<Client> client_;
};

TEST_F(ClientRatesTest, RatesOfAPushReachEveryShard) {
  first_.set_protocol(1, kMinorOfLearningRates);
  second_.set_protocol(1, kMinorOfLearningRates);
  ConnectAndPull();
  ASSERT_EQ(Step({0.25, 0.5}), absl::OkStatus());
  for (const wire::WorkerItem& push : {first_.pushes(0).back(), second_.pushes(1).back()}) {
    EXPECT_THAT(push.push().commit().learning_rates(), ElementsAre(0.25, 0.5));
  }
}

TEST_F(ClientRatesTest, ServerThatWouldIgnoreRatesIsRefusedByNameBeforeAPush) {
  first_.set_protocol(1, kMinorOfLearningRates);
  second_.set_protocol(1, kMinorOfLearningRates - 1);
  ConnectAndPull();
  ASSERT_EQ(Step({}), absl::OkStatus()) << "without rates it is good enough";
  const absl::Status status = Step({0.25});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ps-2"), HasSubstr("speaks protocol 1.1")));
  EXPECT_EQ(first_.pushes(0).size(), 1);
}

}  // namespace
}  // namespace slackline::worker::client_rates_test
