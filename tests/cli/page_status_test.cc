#include "cli/run/page_status.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "cli/run/report.h"
#include "scheduler/base/message_json.h"

namespace slackline::cli::page_status_test {
namespace {

using ::testing::HasSubstr;

wire::JobStatus Trains() {
  wire::JobStatus status;
  status.set_job("77");
  status.set_name("first");
  status.set_state("training");
  status.mutable_progress()->set_epoch(2);
  status.mutable_progress()->set_epochs(5);
  status.mutable_progress()->set_test_accuracy(0.5);
  status.mutable_curve()->add_loss(std::nan(""));
  wire::ServerView& server = *status.add_servers();
  server.set_server(1);
  server.set_name("ps-1");
  server.set_state("live");
  server.set_shards(3);
  server.mutable_backup()->set_name("ps-2");
  server.mutable_backup()->set_in_step(true);
  wire::WorkerView& worker = *status.add_workers();
  worker.set_name("w-1");
  worker.set_state("dead");
  worker.set_reason("gone");
  worker.set_silent_s(1.5);
  worker.set_clock(uint64_t{1} << 53);
  status.add_events()->set_text("w-1 is dead");
  status.set_events_total(9);
  return status;
}

TEST(PageStatus, SaysWhatTheSchedulerWould) {
  const absl::StatusOr<wire::GetStatusReply> reply = ReplyOf(scheduler::ToJson(Trains()));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->state(), wire::JOB_TRAINING);
  EXPECT_EQ(reply->epochs(), 5u);
  EXPECT_EQ(reply->event_count(), 9u);
  ASSERT_EQ(reply->members_size(), 3);
  EXPECT_EQ(reply->members(2).clock(), uint64_t{1} << 53);
  EXPECT_EQ(reply->members(2).silent_ms(), 1500u);
  const std::string text = RenderStatus(*reply);
  for (const char* const part :
       {"job first: training", "test accuracy 50.00 %", "ps-1", "ps-2", "in step", "backup of ps-1", "w-1", "(gone)"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(PageStatus, SaysWhatIsMeasured) {
  wire::JobStatus status = Trains();
  status.mutable_progress()->set_test_metric("map");
  EXPECT_THAT(RenderStatus(*ReplyOf(scheduler::ToJson(status))), HasSubstr("test mAP 50.00 %"));
}

TEST(PageStatus, WithoutAnAccuracyTheLossIsSaid) {
  wire::JobStatus status = Trains();
  status.mutable_progress()->clear_test_accuracy();
  status.mutable_progress()->set_test_loss(0.031);
  EXPECT_THAT(RenderStatus(*ReplyOf(scheduler::ToJson(status))), HasSubstr("test loss 0.0310\n"));
}

TEST(PageStatus, FieldsOfLaterVersionsAreIgnored) {
  std::string json = scheduler::ToJson(Trains());
  json.insert(1, R"("later": {"a": [1, null]}, )");
  EXPECT_TRUE(ReplyOf(json).ok());
}

TEST(PageStatus, WhatIsNoStatusIsRefused) {
  const std::string deep(1 << 20, '[');
  for (const std::string& json :
       {std::string(), std::string("{}"), std::string("[]"), deep, std::string(R"({"job": 1, "state": {}})"),
        absl::StrCat(R"({"job": "1", "state": "done", "workers": )", deep), std::string("{\"job\": \"\xff\"")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReplyOf(json).status())) << json.substr(0, 80);
  }
  // What is too deep is not there.
  EXPECT_TRUE(
      ReplyOf(absl::StrCat(R"({"job": "1", "state": "done", "later": )", deep, std::string(deep.size(), ']'), "}"))
          .ok());
}

TEST(PageStatus, AddressesOfPagesAreKnown) {
  EXPECT_EQ(PageAddress("http://localhost:8080"), "localhost:8080");
  EXPECT_EQ(PageAddress("http://[::1]:8080/api/status?x=1"), "[::1]:8080");
  for (const char* const other :
       {"localhost:8080", "http://localhost", "http://", "http:///", "https://localhost:8080/"}) {
    EXPECT_EQ(PageAddress(other), "") << other;
  }
}

}  // namespace
}  // namespace slackline::cli::page_status_test
