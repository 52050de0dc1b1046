// The queue of the service: which job begins next, and what orders do.
#include "cli/service/job_queue.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::cli::job_queue_test {
namespace {

using ::testing::HasSubstr;

wire::SubmitRequest Job(int priority = 0) {
  wire::SubmitRequest request;
  request.set_name("job");
  request.set_priority(priority);
  request.mutable_launch()->set_job_yaml("name: job");
  request.mutable_launch()->set_folder("/");
  return request;
}

wire::OrderJobRequest Of(wire::JobOrder order, uint64_t id) {
  wire::OrderJobRequest request;
  request.set_id(id);
  request.set_order(order);
  return request;
}

class Queue : public testing::Test {
 protected:
  uint64_t Submit(int priority = 0) { return queue_.Submit(Job(priority), 1).value().id(); }
  absl::Status Order(wire::JobOrder order, uint64_t id) { return queue_.Order(Of(order, id), 3).status(); }
  std::string State(uint64_t id) const { return StateName(*queue_.Find(id)); }

  JobQueue queue_{2};
};

TEST_F(Queue, JobsBeginByPriorityAndThenInTheirOrderAsFarAsThereIsRoom) {
  const uint64_t first = Submit(), second = Submit(), urgent = Submit(5);
  EXPECT_EQ(queue_.Next(), urgent);
  queue_.Begin(urgent, 2);
  EXPECT_EQ(queue_.Next(), first);
  queue_.Begin(first, 2);
  EXPECT_EQ(queue_.Next(), std::nullopt);
  queue_.End(urgent, {wire::SERVICE_JOB_DONE, ""}, 3);
  EXPECT_EQ(queue_.Next(), second);
}

TEST_F(Queue, AJobThatWaitsEndsAtOnceByAnOrderAndCanBeResumed) {
  const uint64_t stopped = Submit(), cancelled = Submit();
  EXPECT_TRUE(Order(wire::JOB_ORDER_STOP, stopped).ok());
  EXPECT_TRUE(Order(wire::JOB_ORDER_CANCEL, cancelled).ok());
  EXPECT_EQ(State(stopped), "stopped");
  EXPECT_EQ(State(cancelled), "cancelled");
  EXPECT_EQ(queue_.Next(), std::nullopt);
  EXPECT_TRUE(Order(wire::JOB_ORDER_RESUME, cancelled).ok());
  EXPECT_EQ(queue_.Next(), cancelled);
}

TEST_F(Queue, ARunningJobKeepsTheOrderUntilItHasEnded) {
  const uint64_t id = Submit();
  queue_.Begin(id, 2);
  EXPECT_TRUE(Order(wire::JOB_ORDER_STOP, id).ok());
  EXPECT_EQ(State(id), "stopping");
  EXPECT_TRUE(Order(wire::JOB_ORDER_CANCEL, id).ok());
  EXPECT_TRUE(Order(wire::JOB_ORDER_STOP, id).ok());
  EXPECT_EQ(State(id), "cancelling") << "an order to end at once is not taken back";
  queue_.End(id, {wire::SERVICE_JOB_STOPPED, "saved"}, 4);
  EXPECT_EQ(State(id), "cancelled");
}

TEST_F(Queue, AJobThatFailsWhileItStopsSaysWhy) {
  const uint64_t id = Submit();
  queue_.Begin(id, 2);
  EXPECT_TRUE(Order(wire::JOB_ORDER_STOP, id).ok());
  queue_.End(id, {wire::SERVICE_JOB_FAILED, "no space"}, 4);
  EXPECT_EQ(State(id), "failed");
  EXPECT_EQ(queue_.Find(id)->reason(), "no space");
}

TEST_F(Queue, AJobThatIsDoneInSpiteOfAnOrderIsDone) {
  const uint64_t id = Submit();
  queue_.Begin(id, 2);
  EXPECT_TRUE(Order(wire::JOB_ORDER_CANCEL, id).ok());
  queue_.End(id, {wire::SERVICE_JOB_DONE, ""}, 4);
  EXPECT_EQ(State(id), "done");
  EXPECT_EQ(queue_.Find(id)->reason(), "");
}

TEST_F(Queue, AJobThatIsGoneWithoutAWordBeginsAgainButNotForever) {
  const uint64_t id = Submit();
  for (uint32_t i = 0; i < JobQueue::kLossesMax; ++i) {
    queue_.Begin(id, 2);
    queue_.End(id, {wire::SERVICE_JOB_UNKNOWN, "power"}, 3);
    EXPECT_EQ(State(id), "queued");
  }
  queue_.Begin(id, 2);
  queue_.End(id, {wire::SERVICE_JOB_UNKNOWN, "power"}, 3);
  EXPECT_EQ(State(id), "failed");
  EXPECT_THAT(queue_.Find(id)->reason(), HasSubstr("gone 4 times without a new checkpoint: power; to continue"));
}

TEST_F(Queue, AJobThatMakesCheckpointsBeginsAgainAsOftenAsItIsLost) {
  const uint64_t id = Submit();
  for (uint32_t i = 0; i < 3 * JobQueue::kLossesMax; ++i) {
    queue_.Begin(id, 2, /*checkpoint=*/i);
    EXPECT_EQ(queue_.Find(id)->begun_checkpoint(), i);
    queue_.End(id, {wire::SERVICE_JOB_UNKNOWN, "power", /*advanced=*/true}, 3);
    EXPECT_EQ(State(id), "queued");
  }
}

TEST_F(Queue, AnOrderThatTheStateDoesNotAllowIsRefusedAndChangesNothing) {
  const uint64_t waits = Submit();
  EXPECT_THAT(Order(wire::JOB_ORDER_RESUME, waits).message(), HasSubstr("job 1 is queued, and cannot be resumed"));
  EXPECT_THAT(Order(wire::JOB_ORDER_REMOVE, waits).message(), HasSubstr("allowed are jobs that have ended"));
  EXPECT_EQ(Order(wire::JOB_ORDER_STOP, 99).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Order(wire::JOB_ORDER_NONE, waits).code(), absl::StatusCode::kInvalidArgument);
  wire::OrderJobRequest settings = Of(wire::JOB_ORDER_STOP, waits);
  settings.add_overrides("a=b");
  EXPECT_EQ(queue_.Order(settings, 3).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(State(waits), "queued");
  queue_.Begin(waits, 2);
  queue_.End(waits, {wire::SERVICE_JOB_DONE, ""}, 3);
  EXPECT_THAT(Order(wire::JOB_ORDER_CANCEL, waits).message(), HasSubstr("job 1 is done, and cannot be cancelled"));
}

TEST_F(Queue, WhatMakesNoSenseIsNotTakenIn) {
  wire::SubmitRequest unnamed = Job(), blank = Job();
  unnamed.clear_name();
  blank.set_name(" ");
  wire::SubmitRequest empty = Job();
  empty.mutable_launch()->clear_job_yaml();
  for (const wire::SubmitRequest& request : {unnamed, blank, empty, Job(JobQueue::kPriorityMax + 1)}) {
    EXPECT_EQ(queue_.Submit(request, 1).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(queue_.jobs().empty());
}

TEST_F(Queue, ARestoredQueueGoesOnWithItsNumbersAndItsOrder) {
  wire::ServiceJob kept = queue_.Submit(Job(), 1).value();
  kept.set_id(7);
  JobQueue again(1);
  again.Restore(kept);
  again.CountFrom(9);
  EXPECT_EQ(again.Next(), 7u);
  EXPECT_EQ(again.Submit(Job(), 1).value().id(), 10u);
  // The host puts a job back that it could not save.
  const wire::ServiceJob before = *again.Find(7);
  again.Begin(7, 2);
  EXPECT_EQ(again.Next(), std::nullopt);
  again.Restore(before);
  EXPECT_EQ(again.Next(), 7u);
}

}  // namespace
}  // namespace slackline::cli::job_queue_test
