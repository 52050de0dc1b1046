#include "common/job/script_optimizer.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/job/job_file.h"

namespace slackline::script_optimizer_test {
namespace {

using testing::HasSubstr;

constexpr char kExternal[] = "model: {kind: external}\n";

job::Job Read(const std::string& text) {
  absl::StatusOr<job::Job> job = ParseJob(kExternal + text, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return Resolve(*job);
}

absl::StatusOr<job::Optimizer> With(const job::Job& job, const std::vector<std::string>& settings,
                                    const std::vector<ScriptGroup>& groups = {}) {
  const absl::StatusOr<job::Optimizer> script = ReadScriptOptimizer(settings, groups);
  if (!script.ok()) return script.status();
  return WithScriptOptimizer(job, *script);
}

TEST(ScriptOptimizer, GivesWhatTheJobFileDoesNotName) {
  const job::Job job = Read("optimizer: {kind: adamw, clip_norm: 1, schedule: {kind: cosine}}\n");
  const auto whole = With(job, {"kind=adamw", "lr=0.002", "beta2=0.95", "weight_decay=0.1", "epsilon=1e-08"},
                          {{.name = "group 1", .lr_factor = 0.5, .weight_decay = 0}});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->kind(), job::Optimizer::ADAMW);
  EXPECT_EQ(whole->lr(), 0.002);
  EXPECT_EQ(whole->beta2(), 0.95);
  EXPECT_EQ(whole->clip_norm(), 1);
  EXPECT_EQ(whole->schedule().kind(), job::Schedule::COSINE);
  EXPECT_EQ(
      OptimizerText(*whole),
      "adamw, lr 0.002, beta1 0.9, beta2 0.95, epsilon 1e-08, weight_decay 0.1; group 1: lr 0.001, weight_decay 0");
}

TEST(ScriptOptimizer, MustAgreeWithTheJobFile) {
  const job::Job job = Read("optimizer: {kind: sgd, lr: 0.05, weight_decay: 0}\n");
  EXPECT_TRUE(With(job, {"kind=sgd", "lr=0.05", "momentum=0.9", "weight_decay=0.0"}).ok());
  EXPECT_EQ(
      With(job, {"kind=sgd", "lr=0.1", "weight_decay=0.01"}).status().message(),
      "optimizer.lr: the job file says 0.05, and the script's optimizer 0.1. Take optimizer.lr out of the job file to "
      "use the script's, or say the same in both\n"
      "optimizer.weight_decay: the job file says 0, and the script's optimizer 0.01. Take optimizer.weight_decay out "
      "of the job file to use the script's, or say the same in both");
  EXPECT_THAT(With(job, {"kind=adam"}).status().message(), HasSubstr("optimizer.kind: the job file says sgd, and"));
  const job::Job groups = Read("optimizer: {groups: [{match: \"*.bias\", weight_decay: 0}]}\n");
  EXPECT_THAT(With(groups, {"lr=0.1"}).status().message(), HasSubstr("Take optimizer.groups out of the job file"));
  job::Job images;
  EXPECT_THAT(With(images, {"lr=0.1"}).status().message(), HasSubstr("model.kind: found mlp; allowed is external"));
}

TEST(ScriptOptimizer, KeepsTheRulesOfTheJobFile) {
  const auto refusal = [](const std::vector<std::string>& settings, const std::vector<ScriptGroup>& groups = {}) {
    return std::string(With(Read(""), settings, groups).status().message());
  };
  EXPECT_EQ(refusal({"lr=2000"}),
            "the script's optimizer: optimizer.lr: found '2000'; allowed is a number from 0 to 1000");
  EXPECT_THAT(refusal({"lr=nan"}), HasSubstr("found 'nan'"));
  EXPECT_THAT(refusal({"ema=0.9"}), HasSubstr("optimizer.ema: found 0.9; allowed is kind, lr,"));
  EXPECT_THAT(refusal({"kind=sgd", "nesterov=true"}), HasSubstr("optimizer.nesterov: found true without momentum"));
  EXPECT_THAT(refusal({"kind=sgd", "beta1=0.5"}), HasSubstr("optimizer.beta1"));
  EXPECT_THAT(refusal({}, {{.name = "", .lr_factor = 1}}), HasSubstr("optimizer.groups[0]: found a name of 0 bytes"));
  EXPECT_THAT(refusal({}, {{.name = "a\n", .lr_factor = 1}}),
              HasSubstr("'a\\n'; allowed is 1 to 200 bytes of UTF-8 on one line"));
  EXPECT_THAT(refusal({}, {{.name = "a", .lr_factor = 2e6}}),
              HasSubstr("optimizer.groups[0].lr_factor: found '2000000'"));
  // A peer may send any number.
  job::Optimizer script;
  script.set_lr(NAN);
  EXPECT_FALSE(WithScriptOptimizer(Read(""), script).ok());
}

TEST(ScriptOptimizer, ARunFolderKeepsWhatIsLeftToTheScript) {
  const job::Job job = Read("optimizer: {lr: 0.05, ema: 0.5}\n");
  EXPECT_TRUE(job.optimizer().has_lr());
  EXPECT_FALSE(job.optimizer().has_kind());
  EXPECT_TRUE(LeavesToScript(job));
  EXPECT_FALSE(LeavesToScript(Resolve(job::Job())));
  const std::string yaml = ToYaml(job);
  EXPECT_THAT(yaml, HasSubstr("optimizer:\n  lr: 0.05\n  clip_norm: 0\n"));
  const absl::StatusOr<job::Job> again = ParseJob(yaml, "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Resolve(*again).SerializeAsString(), job.SerializeAsString());
  EXPECT_EQ(Fingerprint(*again), Fingerprint(job));
  EXPECT_TRUE(Resolve(job::Job()).optimizer().has_kind()) << "a job of images has all values";
}

}  // namespace
}  // namespace slackline::script_optimizer_test
