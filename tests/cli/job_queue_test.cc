// The queue of the service: which job begins next, and what orders do.
#include "cli/service/job_queue.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::cli::job_queue_test {
namespace {

using ::testing::ElementsAre;
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

  JobQueue queue_{{.jobs = 2}};
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

TEST_F(Queue, ARepeatedOrderWithoutAReasonKeepsTheFirstOne) {
  const uint64_t id = Submit();
  queue_.Begin(id, 2);
  wire::OrderJobRequest stop = Of(wire::JOB_ORDER_STOP, id);
  stop.set_reason("enough");
  EXPECT_TRUE(queue_.Order(stop, 3).ok());
  EXPECT_TRUE(Order(wire::JOB_ORDER_STOP, id).ok());
  EXPECT_EQ(queue_.Find(id)->reason(), "enough");
  EXPECT_TRUE(Order(wire::JOB_ORDER_CANCEL, id).ok());
  EXPECT_EQ(queue_.Find(id)->reason(), "cancelled");
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
  wire::SubmitRequest owned = Job();
  owned.set_owner(std::string(201, 'x'));
  for (const wire::SubmitRequest& request : {unnamed, blank, empty, owned, Job(JobQueue::kPriorityMax + 1)}) {
    EXPECT_EQ(queue_.Submit(request, 1).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(queue_.jobs().empty());
}

struct Wish {
  std::string owner = "ada";
  uint32_t gpus = 0;
  uint64_t memory_bytes = 0;
  int priority = 0;
};

// A queue with limits, and jobs that ask for something.
class Sharing {
 public:
  explicit Sharing(QueueLimits limits) : queue(std::move(limits)) {}

  absl::StatusOr<wire::ServiceJob> Ask(const Wish& wish) {
    wire::SubmitRequest request = Job(wish.priority);
    request.set_owner(wish.owner);
    request.mutable_needs()->set_gpus(wish.gpus);
    request.mutable_needs()->set_memory_bytes(wish.memory_bytes);
    return queue.Submit(request, 1);
  }
  uint64_t Submit(const Wish& wish) { return Ask(wish).value().id(); }
  std::vector<std::string> Begin(uint64_t id) {
    const wire::ServiceJob& job = queue.Begin(id, 2);
    return {job.gpus().begin(), job.gpus().end()};
  }
  void End(uint64_t id) { queue.End(id, {wire::SERVICE_JOB_DONE, ""}, 3); }

  JobQueue queue;
};

TEST(SharedQueue, AmongEqualsBeginsTheJobOfTheOwnerWhoRunsTheFewest) {
  Sharing shared({.jobs = 3});
  const uint64_t first = shared.Submit({}), second = shared.Submit({}), other = shared.Submit({.owner = "bob"});
  const uint64_t urgent = shared.Submit({.priority = 1});
  for (const uint64_t id : {urgent, other, first}) {
    EXPECT_EQ(shared.queue.Next(), id);
    shared.Begin(id);
  }
  EXPECT_EQ(shared.queue.WhyItWaits(second), "3 of 3 jobs run");
}

TEST(SharedQueue, AJobHasItsGpusForItself) {
  Sharing shared({.jobs = 9, .gpus = {"0", "1", "2"}});
  const uint64_t two = shared.Submit({.gpus = 2}), none = shared.Submit({}), late = shared.Submit({.gpus = 2});
  EXPECT_THAT(shared.Begin(two), ElementsAre("0", "1"));
  EXPECT_THAT(shared.Begin(none), ElementsAre());
  EXPECT_EQ(shared.queue.Next(), std::nullopt);
  EXPECT_EQ(shared.queue.WhyItWaits(late), "it asks for 2 GPUs, and 1 of 3 are free");
  shared.End(two);
  EXPECT_EQ(shared.queue.Find(two)->gpus_size(), 0);
  EXPECT_EQ(shared.queue.Next(), late);
  EXPECT_THAT(shared.Begin(late), ElementsAre("0", "1"));
  EXPECT_EQ(shared.queue.used().gpus, 2);
}

TEST(SharedQueue, WhatAJobLacksIsKeptForItAndOthersBeginWithoutThat) {
  Sharing shared({.jobs = 3, .memory_bytes = 100, .gpus = {"0", "1"}});
  const uint64_t runs = shared.Submit({.owner = "eve", .gpus = 1, .memory_bytes = 10});
  shared.Begin(runs);
  const uint64_t large = shared.Submit({.gpus = 2, .memory_bytes = 60});
  const uint64_t small = shared.Submit({.owner = "bob", .gpus = 1});
  const uint64_t heavy = shared.Submit({.owner = "cy", .memory_bytes = 40});
  EXPECT_EQ(shared.queue.Next(), std::nullopt);
  EXPECT_EQ(shared.queue.WhyItWaits(large), "it asks for 2 GPUs, and 1 of 2 are free");
  EXPECT_EQ(shared.queue.WhyItWaits(small), "what it asks for is kept for job 2");
  const uint64_t urgent = shared.Submit({.owner = "dan", .gpus = 1, .priority = 1});
  EXPECT_EQ(shared.queue.Next(), urgent) << "nothing is kept from jobs of a higher priority";
  ASSERT_TRUE(shared.queue.Order(Of(wire::JOB_ORDER_CANCEL, urgent), 2).ok());
  for (const char* owner : {"ada", "ada"}) {
    const uint64_t light = shared.Submit({.owner = owner});
    EXPECT_EQ(shared.queue.Next(), light) << "the large job keeps no place";
    shared.Begin(light);
  }
  shared.End(runs);
  EXPECT_EQ(shared.queue.Next(), large) << "though all other owners run fewer jobs than ada";
  shared.Begin(large);
  EXPECT_EQ(shared.queue.WhyItWaits(heavy), "3 of 3 jobs run");
}

TEST(SharedQueue, JobsOfOneOwnerAreNotLookedAtBeforeOlderOnesOfAnother) {
  Sharing shared({.jobs = 9, .gpus = {"0"}});
  shared.Begin(shared.Submit({.owner = "eve", .gpus = 1}));
  shared.Submit({.gpus = 1});
  const uint64_t second = shared.Submit({.owner = "bob"});
  const uint64_t third = shared.Submit({});
  EXPECT_EQ(shared.queue.Next(), second);
  ASSERT_TRUE(shared.queue.Order(Of(wire::JOB_ORDER_CANCEL, second), 2).ok());
  EXPECT_EQ(shared.queue.Next(), third);
}

TEST(SharedQueue, ManyJobsThatWaitForTheSameHoldUpNobodyElse) {
  Sharing shared({.jobs = 8, .gpus = {"0"}, .owner_jobs = 1});
  shared.Begin(shared.Submit({.owner = "eve", .gpus = 1}));
  for (int i = 0; i < 2000; ++i) shared.Submit({.owner = "bob", .gpus = 1});
  const uint64_t other = shared.Submit({});
  EXPECT_EQ(shared.queue.Next(), other);
}

TEST(SharedQueue, AJobThatCouldNotBeSavedGivesItsShareBack) {
  Sharing shared({.jobs = 9, .gpus = {"0", "1"}});
  const uint64_t id = shared.Submit({.gpus = 2, .memory_bytes = 5});
  const wire::ServiceJob before = *shared.queue.Find(id);
  shared.Begin(id);
  shared.queue.Restore(before);
  EXPECT_EQ(shared.queue.used().gpus, 0);
  EXPECT_EQ(shared.queue.used().memory_bytes, 0);
  EXPECT_EQ(shared.queue.used().jobs, 0);
  EXPECT_EQ(shared.queue.Next(), id);
  EXPECT_THAT(shared.Begin(id), ElementsAre("0", "1"));
}

TEST(SharedQueue, AnOwnerAtALimitKeepsBackNobodyElse) {
  Sharing shared({.jobs = 9, .gpus = {"0", "1", "2"}, .owner_jobs = 2, .owner_memory_bytes = 10, .owner_gpus = 1});
  const uint64_t runs = shared.Submit({.gpus = 1, .memory_bytes = 8});
  shared.Begin(runs);
  const uint64_t gpu = shared.Submit({.gpus = 1}), memory = shared.Submit({.memory_bytes = 3, .priority = -1});
  EXPECT_EQ(shared.queue.Next(), std::nullopt);
  EXPECT_EQ(shared.queue.WhyItWaits(gpu), "it asks for 1 GPU, and ada has 1 of 1 (--owner-gpus-max)");
  EXPECT_EQ(shared.queue.WhyItWaits(memory), "it asks for 3 B of memory, and ada has 8 B of 10 B (--owner-memory-max)");
  const uint64_t plain = shared.Submit({.priority = -2}), other = shared.Submit({.owner = "bob", .priority = -3});
  EXPECT_EQ(shared.queue.Next(), plain);
  shared.Begin(plain);
  EXPECT_EQ(shared.queue.WhyItWaits(gpu), "ada runs 2 of 2 jobs (--owner-jobs-max)");
  EXPECT_EQ(shared.queue.Next(), other);
}

TEST(SharedQueue, AJobThatCanNeverBeginIsNotTakenIn) {
  Sharing shared({.memory_bytes = 100, .gpus = {"0", "1"}, .owner_memory_bytes = 50, .owner_gpus = 1});
  EXPECT_THAT(shared.Ask({.gpus = 3}).status().message(), HasSubstr("asks for 3 GPUs; allowed are 2"));
  EXPECT_THAT(shared.Ask({.gpus = 2}).status().message(), HasSubstr("allowed are 1 to an owner (--owner-gpus-max)"));
  EXPECT_THAT(shared.Ask({.memory_bytes = 101}).status().message(), HasSubstr("allowed are 100 B of the service"));
  EXPECT_THAT(shared.Ask({.memory_bytes = 51}).status().message(), HasSubstr("allowed are 50 B to an owner"));
  EXPECT_THAT(Sharing({}).Ask({.gpus = 1}).status().message(), HasSubstr("hands out none; start it with --gpus"));
  Sharing exact({.memory_bytes = 1 << 30});
  EXPECT_THAT(exact.Ask({.memory_bytes = (1 << 30) + 1}).status().message(),
              HasSubstr("1073741825 bytes of memory; allowed are 1073741824 bytes"));
  const uint64_t all = std::numeric_limits<uint64_t>::max();
  EXPECT_THAT(Sharing({}).Ask({.memory_bytes = all}).status().message(), HasSubstr("allowed are 1125899906842624"));
  EXPECT_TRUE(shared.queue.jobs().empty());
}

TEST(SharedQueue, AHostWithSmallerLimitsKeepsJobsThatRunAndPassesOverThoseThatCannotBegin) {
  Sharing before({.jobs = 9, .gpus = {"0", "1"}});
  const uint64_t runs = before.Submit({.gpus = 1}), large = before.Submit({.gpus = 2}),
                 small = before.Submit({.gpus = 1});
  before.Begin(runs);
  JobQueue after({.jobs = 9, .gpus = {"0"}});
  for (const auto& [id, job] : before.queue.jobs()) after.Restore(job);
  EXPECT_EQ(after.WhyItWaits(large), "it asks for 2 GPUs; allowed are 1, those of the service (--gpus)");
  EXPECT_EQ(after.OtherGpus(runs), "");
  EXPECT_EQ(after.Next(), std::nullopt) << "the GPU is taken";
  after.End(runs, {wire::SERVICE_JOB_DONE, ""}, 3);
  EXPECT_EQ(after.used().jobs, 0);
  EXPECT_EQ(after.Next(), small);
  ASSERT_TRUE(after.Order(Of(wire::JOB_ORDER_CANCEL, large), 4).ok());
  EXPECT_THAT(after.Order(Of(wire::JOB_ORDER_RESUME, large), 5).status().message(), HasSubstr("allowed are 1"));
}

TEST(SharedQueue, AJobThatMayUseGpusOfOthersIsNamed) {
  for (const std::vector<std::string>& gpus : {std::vector<std::string>{}, {"0", "1"}}) {
    Sharing before({.jobs = 9, .gpus = gpus});
    const uint64_t runs = before.Submit({.gpus = gpus.empty() ? 0U : 1U});
    before.Begin(runs);
    JobQueue after({.jobs = 9, .gpus = {"GPU-b7"}}), without({.jobs = 9});
    after.Restore(*before.queue.Find(runs));
    without.Restore(*before.queue.Find(runs));
    EXPECT_THAT(after.OtherGpus(runs), HasSubstr("other --gpus and may use GPUs that other jobs get"));
    EXPECT_EQ(without.OtherGpus(runs).empty(), gpus.empty()) << "new jobs see the GPUs of those that have some";
  }
}

TEST(SharedQueue, JobsThatEndedFirstAreSurplus) {
  Sharing shared({.jobs = 9, .ended = 1});
  const uint64_t first = shared.Submit({}), second = shared.Submit({}), third = shared.Submit({});
  for (const uint64_t id : {first, second, third}) shared.Begin(id);
  shared.queue.End(second, {wire::SERVICE_JOB_DONE, ""}, 8);
  EXPECT_THAT(shared.queue.Surplus(100), ElementsAre());
  shared.queue.End(first, {wire::SERVICE_JOB_DONE, ""}, 9);
  shared.queue.End(third, {wire::SERVICE_JOB_FAILED, "no data"}, 20);
  EXPECT_THAT(shared.queue.Surplus(100), ElementsAre(second, first));
  EXPECT_THAT(shared.queue.Surplus(9), ElementsAre(second)) << "the other has ended only now";
  ASSERT_TRUE(shared.queue.Order(Of(wire::JOB_ORDER_RESUME, second), 21).ok());
  EXPECT_THAT(shared.queue.Surplus(100), ElementsAre(first)) << "the other waits again";
  shared.queue.Remove(first);
  EXPECT_THAT(shared.queue.Surplus(100), ElementsAre());
  const uint64_t stopped = shared.Submit({});
  ASSERT_TRUE(shared.queue.Order(Of(wire::JOB_ORDER_STOP, stopped), 22).ok());
  EXPECT_THAT(shared.queue.Surplus(100), ElementsAre()) << "it is to be continued";
}

class SlurmJobs : public Queue {
 protected:
  static wire::SubmitRequest OnSlurm() {
    wire::SubmitRequest request = Job();
    request.mutable_needs()->set_place(wire::JOB_ON_SLURM);
    return request;
  }
  uint64_t SubmitOnSlurm() { return queue_.Submit(OnSlurm(), 1).value().id(); }
  void Lose(uint64_t id) { queue_.End(id, {wire::SERVICE_JOB_UNKNOWN, "killed"}, 3); }
};

TEST_F(SlurmJobs, BeginAtOnceAndTakeNothingFromOthers) {
  for (int i = 0; i < 2; ++i) queue_.Begin(Submit(), 2);
  const uint64_t waits = Submit(5), first = SubmitOnSlurm(), second = SubmitOnSlurm();
  EXPECT_EQ(queue_.Next(), first);
  queue_.Begin(first, 2);
  EXPECT_EQ(queue_.Next(), second);
  queue_.Begin(second, 2);
  EXPECT_EQ(queue_.Next(), std::nullopt);
  EXPECT_EQ(queue_.used().jobs, 2u);
  EXPECT_EQ(queue_.WhyItWaits(waits), "2 of 2 jobs run");
  queue_.End(first, {wire::SERVICE_JOB_DONE, ""}, 3);
  EXPECT_EQ(queue_.Next(), std::nullopt) << "the end of a job on SLURM makes no room here";
}

TEST_F(SlurmJobs, AreFollowedAgainHoweverOftenTheirFollowerIsLost) {
  const uint64_t id = SubmitOnSlurm();
  for (uint32_t i = 0; i < 3 * JobQueue::kLossesMax; ++i) {
    queue_.Begin(id, 2);
    EXPECT_EQ(LostOnSlurm(*queue_.Find(id)), i > 0);
    Lose(id);
    ASSERT_EQ(State(id), "queued");
    EXPECT_EQ(queue_.Next(), id);
  }
  EXPECT_EQ(queue_.Find(id)->reason(), "the process that follows it is gone: killed");
  queue_.Begin(id, 2);
  queue_.End(id, {wire::SERVICE_JOB_FAILED, "no data"}, 3);
  EXPECT_TRUE(Order(wire::JOB_ORDER_RESUME, id).ok());
  EXPECT_FALSE(LostOnSlurm(*queue_.Find(id))) << "it is submitted anew";
}

TEST_F(SlurmJobs, AnOrderOutlivesTheLossOfTheFollower) {
  const uint64_t lost = SubmitOnSlurm(), ordered = SubmitOnSlurm(), queued = SubmitOnSlurm();
  queue_.Begin(lost, 2);
  Lose(lost);
  EXPECT_TRUE(Order(wire::JOB_ORDER_CANCEL, lost).ok());
  EXPECT_EQ(State(lost), "queued") << "SLURM has it: somebody must tell it";
  queue_.Begin(ordered, 2);
  EXPECT_TRUE(Order(wire::JOB_ORDER_STOP, ordered).ok());
  queue_.Tell(ordered);
  Lose(ordered);
  EXPECT_TRUE(Order(wire::JOB_ORDER_CANCEL, queued).ok());
  EXPECT_EQ(State(queued), "cancelled") << "SLURM has not got it yet";
  for (const uint64_t id : {lost, ordered}) {
    EXPECT_EQ(queue_.Next(), id);
    queue_.Begin(id, 4);
    EXPECT_FALSE(queue_.Find(id)->told());
    queue_.End(id, {wire::SERVICE_JOB_STOPPED, "stopped"}, 5);
  }
  EXPECT_EQ(State(lost), "cancelled");
  EXPECT_EQ(State(ordered), "stopped");
}

TEST_F(SlurmJobs, AskForNothingOfTheService) {
  wire::SubmitRequest request = OnSlurm();
  request.mutable_needs()->set_gpus(1);
  EXPECT_THAT(std::string(queue_.Submit(request, 1).status().message()),
              HasSubstr("allowed are options for sbatch, as --sbatch=--gpus-per-node=2"));
  request = Job();
  request.mutable_needs()->set_place(static_cast<wire::JobPlace>(9));
  EXPECT_THAT(std::string(queue_.Submit(request, 1).status().message()),
              HasSubstr("the job's place: found 9; allowed are those from 0 to 1"));
}

TEST_F(Queue, ARestoredQueueGoesOnWithItsNumbersAndItsOrder) {
  wire::ServiceJob kept = queue_.Submit(Job(), 1).value();
  kept.set_id(7);
  JobQueue again({.jobs = 1});
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
