#include "cli/resume_checks.h"

#include <gtest/gtest.h>

namespace slackline::cli {
namespace {

TEST(CheckModelKept, AnEqualModelIsAllowed) {
  job::Job before, after;
  after.mutable_model()->set_kind(job::Model::MLP);  // the default, written out
  after.mutable_training()->set_epochs(99);
  EXPECT_TRUE(CheckModelKept(before, after).ok());
}

TEST(CheckModelKept, EveryDifferenceIsNamed) {
  job::Job before, after;
  before.mutable_model()->add_hidden(32);
  before.mutable_model()->add_hidden(16);
  after.mutable_model()->add_hidden(12);
  after.mutable_model()->set_kind(job::Model::CNN);
  const absl::Status status = CheckModelKept(before, after);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "model.kind: found cnn; allowed is mlp, as the checkpoints of the run have it\n"
            "model.hidden: found [12]; allowed is [32,16], as the checkpoints of the run have it");
}

TEST(CheckModelKept, FewerLayersAreADifference) {
  job::Job before, after;
  before.mutable_model()->add_hidden(32);
  EXPECT_FALSE(CheckModelKept(before, after).ok());
  EXPECT_FALSE(CheckModelKept(after, before).ok());
}

}  // namespace
}  // namespace slackline::cli
