#include "worker/life/course.h"

#include <gtest/gtest.h>

namespace slackline::worker::course_test {
namespace {

const absl::Status kFenced = absl::FailedPreconditionError("not a member");

template <typename T>
bool Is(const Course& course) {
  return std::holds_alternative<T>(course.act());
}

// A course that has joined, has the weights, and asks for work.
Course Asking() {
  Course course;
  EXPECT_TRUE(Is<JoinAct>(course));
  course.Done(absl::OkStatus());
  EXPECT_TRUE(Is<EnterAct>(course));
  course.Done(absl::OkStatus());
  EXPECT_TRUE(Is<AskAct>(course));
  return course;
}

RangeId DoneOf(const Course& course) { return std::get<AskAct>(course.act()).done; }

TEST(Course, ARangeThatIsDoneIsReportedOnce) {
  Course course = Asking();
  EXPECT_EQ(DoneOf(course), RangeId());
  course.Got(RangeWork{.range = RangeId(7)});
  ASSERT_TRUE(Is<RangeWork>(course));
  EXPECT_FALSE(course.goodbye());
  course.Done(absl::OkStatus());
  EXPECT_EQ(DoneOf(course), RangeId(7));
  course.Got(StandbyWork{absl::Seconds(1)});
  course.Done(absl::OkStatus());
  EXPECT_EQ(DoneOf(course), RangeId());
}

TEST(Course, ARangeThatIsGivenUpIsNotReported) {
  Course course = Asking();
  course.Got(RangeWork{.range = RangeId(7)});
  course.GiveUp();
  EXPECT_EQ(DoneOf(course), RangeId());
}

TEST(Course, StandbyAndTheFinalEvaluationCloseTheClientAndOtherEvaluationsKeepIt) {
  Course course = Asking();
  course.Got(EvaluationWork{.epoch = 1});
  EXPECT_FALSE(course.goodbye());
  course.Done(absl::OkStatus());
  course.Got(RangeWork{.range = RangeId(7)});
  EXPECT_TRUE(Is<RangeWork>(course));
  course.Done(absl::OkStatus());
  course.Got(StandbyWork{absl::Seconds(1)});
  EXPECT_EQ(course.goodbye(), "standing by");
  course.Done(absl::OkStatus());
  course.Got(EvaluationWork{.epoch = 1, .final = true});
  EXPECT_TRUE(Is<EvaluationWork>(course));
  EXPECT_EQ(course.goodbye(), "reading the final weights");
}

TEST(Course, WorkForAWorkerOnStandbyMakesItJoinAgain) {
  for (const Work& work : {Work(RangeWork{}), Work(EvaluationWork{})}) {
    Course course = Asking();
    course.Got(StandbyWork{absl::Seconds(1)});
    course.Done(absl::OkStatus());
    course.Got(work);
    EXPECT_TRUE(Is<JoinAct>(course));
  }
}

TEST(Course, AFencedWorkerJoinsAgainAndGivesUpAfterLivesWithoutAStep) {
  Course course = Asking();
  course.Got(RangeWork{.range = RangeId(7)});
  course.Stepped();
  course.Done(kFenced);
  for (int i = 0; i < Course::kFruitlessLivesMax + 1; ++i) {
    ASSERT_TRUE(Is<JoinAct>(course)) << i;
    EXPECT_EQ(course.goodbye(), "not a member");
    course.Done(kFenced);
  }
  ASSERT_TRUE(course.leaves());
  EXPECT_EQ(std::get<LeaveAct>(course.act()).status, kFenced);
}

TEST(Course, AnyOtherErrorMakesTheWorkerLeave) {
  Course course = Asking();
  course.Done(absl::InternalError("a loss is not finite"));
  ASSERT_TRUE(course.leaves());
  EXPECT_EQ(LeaveReason(std::get<LeaveAct>(course.act())), "failed: a loss is not finite");
  course.Done(kFenced);
  EXPECT_TRUE(course.leaves()) << "for good";
}

TEST(Course, AWorkerLeavesInGoodOrderWhenTheSchedulerOrItsOwnerSaysSo) {
  Course told = Asking(), stopped = Asking();
  told.Got(LeaveWork{"the job is done"});
  stopped.End(absl::OkStatus(), "told to stop");
  for (const auto& [course, reason] : {std::pair(told, "the job is done"), std::pair(stopped, "told to stop")}) {
    ASSERT_TRUE(course.leaves());
    EXPECT_EQ(course.goodbye(), reason);
    EXPECT_EQ(LeaveReason(std::get<LeaveAct>(course.act())), reason);
  }
}

}  // namespace
}  // namespace slackline::worker::course_test
