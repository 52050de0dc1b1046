// The worker's line to the scheduler, against a scheduler that listens on this machine.
#include "worker/scheduler_link/scheduler_link.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/time/clock.h"
#include "scheduler/service/server_links.h"
#include "scheduler/service/service.h"
#include "worker/scheduler_link/scheduler_wire.h"

namespace slackline::worker::scheduler_link_test {
namespace {

using testing::HasSubstr;

TEST(SchedulerWire, EvaluationOfVeryManyClassesFitsIntoAMessage) {
  EvaluationResult result;
  for (const size_t classes : {10'000, 1'000'000}) {
    result.metrics.classes.resize(classes, {.samples = 12, .precision = 0.5, .recall = 0.25, .f1 = 1.0 / 3});
    result.class_names.resize(classes, "a class");
    result.metrics.f1_macro = 1.0 / 3;
    const wire::EvaluationReport report = ToWire(result);
    EXPECT_LT(report.ByteSizeLong(), 2u << 20);
    EXPECT_EQ(report.classes_size(), classes == 10'000 ? 10'000 : 0);
    EXPECT_EQ(report.f1_macro(), 1.0 / 3);
  }
}

class SchedulerLinkTest : public testing::Test {
 protected:
  SchedulerLinkTest() : links_(timeouts_), controller_(Config(), time_, links_) {
    auto server = scheduler::SchedulerServer::Start("127.0.0.1:0", controller_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~SchedulerLinkTest() override { server_.reset(); }

  scheduler::Controller::Config Config() const {
    scheduler::Controller::Config config;
    config.job = Resolve(job::Job());
    config.fingerprint = 5;
    config.id = JobId(77);
    config.timeouts = timeouts_;
    return config;
  }

  std::unique_ptr<SchedulerLink> Link(const std::string& name, std::vector<TensorInfo> tensors) {
    SchedulerLink::Options options;
    options.address = absl::StrCat("127.0.0.1:", server_->port());
    options.name = name;
    options.job_fingerprint = 5;
    options.tensors = std::move(tensors);
    options.train_samples = 100;
    options.test_samples = 10;
    options.timeouts = timeouts_;
    return SchedulerLink::Create(options);
  }

  const Timeouts timeouts_ = {.heartbeat = absl::Milliseconds(200)};
  const SteadyTime time_;
  scheduler::ServerLinks links_;
  scheduler::Controller controller_;
  std::unique_ptr<scheduler::SchedulerServer> server_;
};

// Both run in this process, whose id and host they have in common: their instances tell them apart.
TEST_F(SchedulerLinkTest, OneOfTwoWorkersOfOneNameIsRefusedForGood) {
  const std::vector<TensorInfo> tensors = {{.name = "weight", .shape = {10'000}, .trained = true}};
  const std::unique_ptr<SchedulerLink> links[] = {Link("python-1", tensors), Link("python-1", tensors)};
  absl::Status ends[2];
  std::vector<std::thread> joins;
  for (int i : {0, 1}) {
    joins.emplace_back([&, i] {
      ends[i] = links[i]->Join().status();
      links[1 - i]->Interrupt("the other has its answer");
    });
  }
  for (std::thread& join : joins) join.join();
  const int refused = absl::IsAlreadyExists(ends[0]) ? 0 : 1;
  EXPECT_TRUE(absl::IsAlreadyExists(ends[refused])) << ends[0] << "; " << ends[1];
  EXPECT_THAT(std::string(ends[refused].message()), HasSubstr("worker python-1 is there already"));
  EXPECT_TRUE(absl::IsCancelled(ends[1 - refused])) << ends[0] << "; " << ends[1];
}

// A mixture of experts has a tensor or three for each expert of each layer.
TEST_F(SchedulerLinkTest, ModelOfVeryManyTensorsJoins) {
  std::vector<TensorInfo> tensors(100'000, {.name = "", .shape = {16}, .trained = true});
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].name = absl::StrCat("model.layers.", i / 1000, ".mlp.experts.", i % 1000, ".down_proj.weight");
  }
  const std::unique_ptr<SchedulerLink> link = Link("w-1", tensors);
  std::thread join([&] { link->Join().status().IgnoreError(); });
  const absl::Time deadline = time_.Now() + absl::Seconds(20);
  while (controller_.Members().workers.at("joining") == 0 && time_.Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(controller_.Members().workers.at("joining"), 1u);
  link->Interrupt("enough");
  join.join();
}

}  // namespace
}  // namespace slackline::worker::scheduler_link_test
