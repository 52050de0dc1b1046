// Golden text of the view that a person sees.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "cli/run/progress.h"
#include "cli/run/report.h"
#include "cli/run/status_view.h"
#include "common/job/job_file.h"
#include "common/metrics/measured.h"

namespace slackline::cli::view_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

wire::GetStatusReply Training() {
  wire::GetStatusReply status;
  status.set_name("trial");
  status.set_state(wire::JOB_TRAINING);
  status.set_epoch(2);
  status.set_epochs(5);
  status.set_samples_done(129000);
  status.set_samples_total(300000);
  status.set_samples_per_second(61234.4);
  status.set_loss(0.41234);
  status.set_train_accuracy(0.8514);
  status.set_slack(3);
  status.set_seconds_left(42.4);
  status.set_elapsed_seconds(7.25);
  return status;
}

TEST(RenderProgress, FitsTheWidth) {
  const wire::GetStatusReply status = Training();
  const std::pair<int, const char*> kGolden[] = {
      {120,
       "epoch 2/5 [==========              ]  43 %  61,234 samples/s  train loss 0.412  accuracy 85.1 %  slack 3  0:42 "
       "left"},
      {100, "epoch 2/5 [===      ]  43 %  61,234 samples/s  train loss 0.412  accuracy 85.1 %  slack 3  0:42 left"},
      {79, "epoch 2/5  43 %  61,234 samples/s  train loss 0.412  accuracy 85.1 %  slack 3"},
      {40, "epoch 2/5  43 %  61,234 samples/s"},
      {20, "epoch 2/5  43 %"},
      {9, "epoch 2/5"},
      {0, ""},
  };
  for (const auto& [width, line] : kGolden) EXPECT_EQ(RenderProgress(status, width), line) << width;
  for (int width = 0; width < 200; ++width) {
    EXPECT_LE(RenderProgress(status, width).size(), static_cast<size_t>(width));
  }
}

TEST(RenderProgress, CountsTokens) {
  wire::GetStatusReply status = Training();
  status.set_tokens_per_sample(256);
  EXPECT_THAT(RenderProgress(status, 120), ::testing::HasSubstr("15,676,006 tokens/s  train loss"));
}

TEST(RenderProgress, SaysWhatItWaitsFor) {
  wire::GetStatusReply status;
  status.set_state(wire::JOB_STARTING);
  EXPECT_EQ(RenderProgress(status, 80), "starting");
  status.set_reason("1 of 2 workers are there");
  EXPECT_EQ(RenderProgress(status, 80), "starting: 1 of 2 workers are there");
}

TEST(RenderProgress, NothingIsKnownYet) {
  wire::GetStatusReply status;
  status.set_state(wire::JOB_TRAINING);
  status.set_epoch(1);
  status.set_epochs(5);
  EXPECT_EQ(RenderPlain(status), "   0.0 s  epoch 1/5   0 %  0 samples/s  train loss -  accuracy -  slack 0");
}

TEST(RenderProgress, WhatFindsObjectsHasNoAccuracy) {
  wire::GetStatusReply status;
  status.set_state(wire::JOB_TRAINING);
  status.set_test_metric("map");
  EXPECT_EQ(RenderPlain(status), "   0.0 s  epoch 0/0   0 %  0 samples/s  train loss -  slack 0");
  EXPECT_THAT(RenderStatus(status), testing::Not(HasSubstr("mAP"))) << "nothing was evaluated yet";
  status.set_has_test_accuracy(true);
  status.set_test_accuracy(0.4152);
  EXPECT_THAT(RenderStatus(status), HasSubstr("test mAP 41.52 %\n"));
  EXPECT_THAT(RenderStatus(status), testing::Not(HasSubstr("accuracy")));
}

TEST(RenderTime, HoursMinutesSeconds) {
  EXPECT_EQ(RenderTime(0), "0:00");
  EXPECT_EQ(RenderTime(59.6), "1:00");
  EXPECT_EQ(RenderTime(3723), "1:02:03");
  EXPECT_EQ(RenderTime(-1), "0:00");
}

TEST(RenderCount, GroupsOfThree) {
  EXPECT_EQ(RenderCount(0), "0");
  EXPECT_EQ(RenderCount(999.4), "999");
  EXPECT_EQ(RenderCount(1000), "1,000");
  EXPECT_EQ(RenderCount(1234567), "1,234,567");
}

// Output of a ProgressDisplay.
class Written {
 public:
  Written() : file_(std::tmpfile()), out_(::fileno(file_)) {}
  ~Written() { std::fclose(file_); }
  Output& out() { return out_; }
  std::string text() {
    // The thread that writes may be late on a busy machine; then Output takes its reader for stuck.
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (out_.stuck() && absl::Now() < deadline) std::this_thread::yield();
    out_.Flush();
    std::rewind(file_);
    std::string text;
    for (int letter; (letter = std::fgetc(file_)) != EOF;) text += static_cast<char>(letter);
    return text;
  }

 private:
  std::FILE* const file_;
  Output out_;
};

TEST(ProgressDisplay, PlainLinesComeEveryFewSecondsAndForEachEpoch) {
  Written out;
  ProgressDisplay progress(out.out(), ProgressDisplay::Kind::kLines, /*quiet=*/false);
  const absl::Time start = absl::UnixEpoch();
  wire::GetStatusReply status = Training();
  progress.Show(status, start);
  progress.Show(status, start + absl::Seconds(1));
  status.set_epoch(3);
  progress.Show(status, start + absl::Seconds(2));
  progress.Show(status, start + absl::Seconds(6.9));
  progress.Show(status, start + absl::Seconds(7));
  const std::string figures = "  43 %  61,234 samples/s  train loss 0.412  accuracy 85.1 %  slack 3  0:42 left\n";
  EXPECT_EQ(out.text(),
            "   7.2 s  epoch 2/5" + figures + "   7.2 s  epoch 3/5" + figures + "   7.2 s  epoch 3/5" + figures);
}

TEST(ProgressDisplay, ManyShortEpochsAreNoNews) {
  Written out;
  ProgressDisplay progress(out.out(), ProgressDisplay::Kind::kLines, /*quiet=*/false);
  wire::GetStatusReply status = Training();
  status.set_epochs(4000);
  for (uint32_t epoch = 1; epoch <= 10; ++epoch) {
    status.set_epoch(epoch);
    progress.Show(status, absl::UnixEpoch() + absl::Seconds(epoch));
  }
  EXPECT_THAT(out.text(), HasSubstr("epoch 1/4000"));
  EXPECT_THAT(out.text(), HasSubstr("epoch 6/4000"));
  const std::string text = out.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(ProgressDisplay, EventsAreShownOnceAboveTheLine) {
  Written out;
  ProgressDisplay progress(out.out(), ProgressDisplay::Kind::kLive, /*quiet=*/false);
  wire::GetStatusReply status = Training();
  status.add_events("worker-2 joined");
  status.set_event_count(7);
  progress.Show(status, absl::UnixEpoch());
  progress.Show(status, absl::UnixEpoch());
  status.add_events("worker-2 died");
  status.set_event_count(8);
  progress.Show(status, absl::UnixEpoch());
  progress.Clear();
  const std::string line = "\r\x1b[K" + RenderProgress(status, 79);
  EXPECT_EQ(out.text(), "worker-2 joined\n" + line + line + "\r\x1b[Kworker-2 died\n" + line + "\r\x1b[K");
}

TEST(ProgressDisplay, LinesThatNobodyReadAreCounted) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::string got;
  std::thread reader;
  {
    Output out(ends[1]);
    ProgressDisplay progress(out, ProgressDisplay::Kind::kLines, /*quiet=*/false);
    const std::string line(1000, 'x');
    for (int i = 0; i < 1000; ++i) progress.Say(line);
    ASSERT_TRUE(out.stuck());
    reader = std::thread([&] {
      char bytes[4096];
      for (ssize_t size; (size = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
        got.append(bytes, static_cast<size_t>(size));
    });
    while (out.stuck()) std::this_thread::yield();
    progress.Say("the last");
  }
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_THAT(got, ContainsRegex("\n.Nobody read this for a while: [0-9]+ lines are left out here.*\nthe last\n$"));
}

TEST(ProgressDisplay, QuietShowsOnlyWhatIsSaid) {
  Written out;
  ProgressDisplay progress(out.out(), ProgressDisplay::Kind::kLive, /*quiet=*/true);
  wire::GetStatusReply status = Training();
  status.add_events("worker-2 joined");
  status.set_event_count(1);
  progress.Show(status, absl::UnixEpoch());
  progress.Say("said");
  EXPECT_EQ(out.text(), "said\n");
}

TEST(Report, EvaluationIsATable) {
  wire::EvaluationReport evaluation;
  evaluation.set_epoch(5);
  evaluation.set_samples(10000);
  evaluation.set_loss(0.33125);
  evaluation.set_accuracy(0.8812);
  for (const auto& [name, precision] : {std::pair("T-shirt/top", 0.8), std::pair("Ankle boot", 0.9)}) {
    wire::ClassReport& row = *evaluation.add_classes();
    row.set_name(name);
    row.set_samples(5000);
    row.set_precision(precision);
    row.set_recall(0.75);
    row.set_f1(0.5);
  }
  evaluation.set_precision_macro(0.85);
  evaluation.set_recall_macro(0.75);
  evaluation.set_f1_macro(0.5);
  evaluation.set_f1_micro(0.8812);
  evaluation.set_f1_weighted(0.6);
  EXPECT_EQ(RenderEvaluation(job::Job(), evaluation),
            "Test accuracy 88.12 %  (loss 0.3312, 10,000 images, after 5 epochs)\n"
            "\n"
            "  class                  images  precision   recall       F1\n"
            "  T-shirt/top              5000      0.800    0.750    0.500\n"
            "  Ankle boot               5000      0.900    0.750    0.500\n"
            "  mean (macro)                       0.850    0.750    0.500\n"
            "  all (micro)                        0.881    0.881    0.881\n"
            "  by images (weighted)               0.850    0.881    0.600\n");
  wire::EvaluationReport many = evaluation;
  many.set_top5_accuracy(0.9876);
  EXPECT_THAT(RenderEvaluation(job::Job(), many), HasSubstr("after 5 epochs)\nTop-5 accuracy 98.76 %\n\n  class"));
}

TEST(Report, OfManyClassesTheBestAndTheWorstAreShown) {
  wire::EvaluationReport evaluation;
  evaluation.set_samples(2846);
  evaluation.set_accuracy(0.5);
  for (int i = 0; i < 2847; ++i) {
    wire::ClassReport& row = *evaluation.add_classes();
    row.set_name(absl::StrCat("class-", i));
    row.set_samples(i == 7 ? 0 : 1);
    row.set_precision(0.5);
    row.set_f1(static_cast<double>(i * 1000 % 2847) / 2847);
  }
  const std::string text = RenderEvaluation(job::Job(), evaluation);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 + 1 + 20 + 1 + 20 + 3);
  EXPECT_THAT(text, HasSubstr("F1\n  class-521                   1      0.500    0.000    1.000\n"));
  EXPECT_THAT(text, HasSubstr("  ... 2806 classes between, and 1 without images: report.json has each\n"));
  EXPECT_THAT(text, HasSubstr("  class-0                     1      0.500    0.000    0.000\n  mean (macro)"));
  EXPECT_THAT(text, HasSubstr("by images (weighted)               0.500"));
}

TEST(Report, WhatAScriptDidNotMeasureIsNotShown) {
  wire::EvaluationReport evaluation;
  EXPECT_EQ(RenderEvaluation(job::Job(), evaluation), "Test: nothing was evaluated\n");
  evaluation.set_epoch(2);
  evaluation.set_samples(100);
  evaluation.set_accuracy(0.5);
  evaluation.set_loss(0.25);
  evaluation.add_classes()->set_name("0");
  EXPECT_EQ(RenderEvaluation(job::Job(), evaluation),
            "Test accuracy 50.00 %  (loss 0.2500, 100 images, after 2 epochs)\n");
}

TEST(Report, AScriptMayMeasureTheLossAlone) {
  job::Job job;
  job.mutable_model()->set_kind(job::Model::EXTERNAL);
  wire::EvaluationReport evaluation;
  evaluation.set_epoch(6);
  evaluation.set_samples(500);
  evaluation.set_accuracy(0.5);
  evaluation.set_loss(0.031);
  EXPECT_EQ(RenderEvaluation(job, evaluation), "Test accuracy 50.00 %  (loss 0.0310, 500 samples, after 6 epochs)\n");
  SetTestAccuracy(std::nullopt, evaluation);
  EXPECT_EQ(RenderEvaluation(job, evaluation), "Test loss 0.0310  (500 samples, after 6 epochs)\n");
  wire::GetStatusReply status;
  status.set_test_loss(0.031);
  EXPECT_THAT(RenderStatus(status), HasSubstr("test loss 0.0310\n"));
}

TEST(Report, AScriptsMetricComesFirst) {
  job::Job job;
  job.mutable_model()->set_kind(job::Model::EXTERNAL);
  job.mutable_training()->mutable_metric()->set_name("perplexity");
  wire::EvaluationReport evaluation;
  evaluation.set_epoch(6);
  evaluation.set_samples(500);
  SetTestAccuracy(std::nullopt, evaluation);
  SetTestLoss(3.0625, evaluation);
  AddNamedValues({{"bleu", 0.25}, {"perplexity", 21.38}}, evaluation.mutable_values());
  EXPECT_EQ(RenderEvaluation(job, evaluation),
            "Test perplexity 21.38  (loss 3.0625, bleu 0.25, 500 samples, after 6 epochs)\n");
  wire::GetStatusReply status = Training();
  status.clear_train_accuracy();
  status.set_test_loss(3.0625);
  status.mutable_metric()->set_name("perplexity");
  EXPECT_THAT(RenderStatus(status), HasSubstr("test loss 3.0625\n"));
  status.mutable_metric()->set_last(21.38);
  EXPECT_THAT(RenderStatus(status), HasSubstr("test perplexity 21.38\n"));
  EXPECT_THAT(RenderStatus(status), Not(HasSubstr("accuracy")));
  AddNamedValues({{"perplexity", 25.5}}, status.mutable_train_values());
  EXPECT_THAT(RenderStatus(status), HasSubstr("  perplexity 25.5  slack"));
}

TEST(Report, ObjectsHaveTheirPrecision) {
  wire::EvaluationReport evaluation;
  evaluation.set_epoch(5);
  evaluation.set_samples(16);
  evaluation.set_accuracy(0.37);
  evaluation.set_map_50(0.582);
  wire::ClassReport& row = *evaluation.add_classes();
  row.set_name("square");
  row.set_samples(20);
  row.set_precision(0.8);
  row.set_recall(0.75);
  row.set_f1(0.5);
  evaluation.set_precision_macro(0.8);
  evaluation.set_recall_macro(0.75);
  evaluation.set_f1_macro(0.5);
  EXPECT_EQ(RenderEvaluation(job::Job(), evaluation),
            "Test mAP 37.00 % (58.20 % at an overlap of 0.5)  (16 images, after 5 epochs)\n"
            "\n"
            "  class                 objects  precision   recall       F1\n"
            "  square                     20      0.800    0.750    0.500\n"
            "  mean (macro)                       0.800    0.750    0.500\n");
  evaluation.set_mask_map(0.3);
  evaluation.set_mask_map_50(0.4);
  EXPECT_EQ(RenderPrecision(evaluation), "mAP 37.00 % (58.20 % at an overlap of 0.5), of masks 30.00 % (40.00 %)");
}

TEST(Report, StatusNamesEveryMember) {
  wire::GetStatusReply status = Training();
  wire::MemberStatus& member = *status.add_members();
  member.set_role(wire::MEMBER_ROLE_WORKER);
  member.set_name("worker-2");
  member.set_state("dead");
  member.set_reason("killed by signal 9");
  member.set_clock(17);
  member.set_samples(1088);
  member.set_silent_ms(5100);
  EXPECT_EQ(RenderStatus(status),
            "job trial: training\n"
            "   7.2 s  epoch 2/5  43 %  61,234 samples/s  train loss 0.412  accuracy 85.1 %  slack 3  0:42 left\n"
            "energy: not metered\n"
            "\n"
            "  member           state            clock      samples  samples/s   silent  address\n"
            "  worker-2         dead                17        1,088          0    5.1 s   (killed by signal 9)\n");
}

TEST(Report, EnergyIsThatOfPhases) {
  EXPECT_EQ(RenderEnergy(nullptr), "energy: not metered\n");
  wire::EnergyView energy;
  energy.set_total_joules(12345);
  energy.mutable_joules()->set_training(12000);
  energy.mutable_joules()->set_validation(300);
  energy.mutable_joules()->set_test(45);
  energy.set_edp_joule_seconds(1.2345e6);
  energy.set_watts(95);
  EXPECT_EQ(
      RenderEnergy(&energy),
      "energy 12.3 kJ (training 12 kJ, validation 300 J, test 45 J, other 0 J), 95 W now; energy x time 1.23 MJ s\n");
}

wire::MemberStatus& AddServer(wire::GetStatusReply& status, uint32_t number, const std::string& name,
                              const std::string& state) {
  wire::MemberStatus& member = *status.add_members();
  member.set_role(wire::MEMBER_ROLE_SERVER);
  member.set_member(number);
  member.set_name(name);
  member.set_state(state);
  return member;
}

TEST(Report, StatusSaysHowManyWorkersItDoesNotList) {
  wire::GetStatusReply status = Training();
  EXPECT_THAT(RenderStatus(status), Not(HasSubstr("more workers")));
  status.set_workers_unlisted(68'000);
  EXPECT_THAT(RenderStatus(status), HasSubstr("\n  and 68000 more workers: most of them left or died long ago\n"));
}

TEST(Report, EvaluationWithoutFiguresByClassHasTheirMeans) {
  wire::EvaluationReport evaluation;
  evaluation.set_samples(100);
  evaluation.set_accuracy(0.5);
  evaluation.set_precision_macro(0.25);
  evaluation.set_recall_macro(0.5);
  evaluation.set_f1_macro(0.3333);
  EXPECT_THAT(
      RenderEvaluation(job::Job(), evaluation),
      HasSubstr("Mean over the classes: precision 0.250, recall 0.500, F1 0.333; report.json has each class\n"));
}

TEST(Report, StatusSaysWhatIsStillToHappenToTheServers) {
  wire::GetStatusReply status = Training();
  AddServer(status, 1, "s1", "live");
  AddServer(status, 2, "s2", "live");
  status.set_servers_wanted(3);
  status.set_servers_to_come(1);
  status.set_servers_change(true);
  EXPECT_THAT(RenderStatus(status), HasSubstr("\nservers: 1 more server may join\n"));
  // One of both is drained meanwhile, and dead.
  status.set_servers_wanted(2);
  status.mutable_members(1)->set_state("dead");
  EXPECT_THAT(
      PendingServers(status),
      ElementsAre("s2 is to leave, and is dead: nothing moves until it is started again", "1 more server may join"));
  status.mutable_members(0)->set_state("draining");
  EXPECT_THAT(PendingServers(status), ElementsAre("s2 is dead: nothing moves until it is started again",
                                                  "s1 is to leave", "1 more server may join"));
  status.set_servers_change(false);
  EXPECT_THAT(PendingServers(status), IsEmpty());
}

TEST(Report, StatusSaysWhoBacksUpWhom) {
  wire::GetStatusReply status = Training();
  AddServer(status, 1, "s1", "live");
  AddServer(status, 2, "s2", "live");
  EXPECT_THAT(RenderStatus(status), Not(HasSubstr("backup"))) << "nobody has asked for any";
  wire::MemberStatus& backup = AddServer(status, 1, "s3", "in step");
  backup.set_backup(true);
  backup.set_address("node:1");
  EXPECT_THAT(RenderStatus(status), ContainsRegex("s3 +in step [^\n]* node:1, backup of s1\n"));
  EXPECT_THAT(RenderStatus(status), ContainsRegex("s2 +live [^\n]*, without a backup\n"));
  EXPECT_THAT(RenderStatus(status), Not(ContainsRegex("s1 +live [^\n]*backup")));
  // The backup has died: it was the only one.
  backup.set_backup(false);
  backup.set_state("dead");
  EXPECT_THAT(RenderStatus(status), ContainsRegex("s1 +live [^\n]*, without a backup\n"));
  EXPECT_THAT(RenderStatus(status), Not(ContainsRegex("s3 +dead [^\n]*backup")));
}

TEST(Report, NextStepsChangeOneThing) {
  job::Job job;
  EXPECT_THAT(RenderNext(job, {"bin/slackline train j.yaml"}, "runs/a"),
              HasSubstr("  bin/slackline train j.yaml --set consistency.mode=bsp  # "));
  job.mutable_consistency()->set_mode(job::Consistency::BSP);
  EXPECT_THAT(RenderNext(job, {"slackline train j.yaml"}, "runs/a"), HasSubstr("--set consistency.mode=async"));
  job.mutable_consistency()->set_mode(job::Consistency::SOFTSYNC);
  EXPECT_THAT(RenderNext(job, {"slackline train j.yaml"}, "runs/a"), HasSubstr("--set consistency.softsync_n=2"));
  job.mutable_consistency()->set_mode(job::Consistency::QUORUM);
  EXPECT_THAT(RenderNext(job, {"slackline train j.yaml"}, "runs/a"), HasSubstr("--set consistency.quorum=1"));
}

TEST(Report, NextStepAddsAsManyWorkersAsANodeHas) {
  job::Job job;
  job.mutable_cluster()->set_workers(4);
  job.mutable_worker()->set_per_node(2);
  EXPECT_THAT(RenderNext(job, {"slackline launch"}, "runs/a"), HasSubstr("--set cluster.workers=6  # the workers of"));
  job.mutable_worker()->set_node_group(true);
  EXPECT_THAT(RenderNext(job, {"slackline launch"}, "runs/a"), HasSubstr("--set cluster.workers=5  # one more worker"));
}

TEST(Report, NextStepGoesBeforeTheArgumentsOfTheScript) {
  EXPECT_THAT(RenderNext(job::Job(), {"slackline launch a.py j.yaml --python p", " -- --fast"}, "runs/a"),
              HasSubstr("a.py j.yaml --python p --set consistency.mode=bsp -- --fast  # "));
}

TEST(Report, NextStepIsOneThatTheOtherSettingsAllow) {
  job::Job job;
  job.mutable_consistency()->set_staleness_max(2);
  EXPECT_THAT(RenderNext(job, {"slackline train j.yaml"}, "runs/a"), HasSubstr("--set consistency.staleness_max=5"));
  job.mutable_consistency()->set_staleness_lr(job::Consistency::INVERSE);
  EXPECT_THAT(RenderNext(job, {"slackline train j.yaml"}, "runs/a"), HasSubstr("--set consistency.staleness_lr=none"));
  job = job::Job();
  job.mutable_consistency()->set_delay_compensation(job::DelayCompensation::CONSTANT);
  EXPECT_THAT(RenderNext(job, {"slackline train j.yaml"}, "runs/a"),
              HasSubstr("--set consistency.staleness_lr=inverse"));
  job = job::Job();
  job.mutable_optimizer()->set_momentum_correction(job::MomentumCorrection::ASYNCHRONY);
  EXPECT_THAT(RenderNext(job, {"slackline train j.yaml"}, "runs/a"),
              HasSubstr("--set consistency.staleness_lr=inverse"));
  // Other modes refuse these, which need theirs.
  for (const auto& [settings, next] :
       {std::pair<const char*, const char*>{"{mode: async, weight_prediction: auto}", "weight_prediction=none"},
        {"{mode: bsp, weighting: uniform, aggregation: median}", "aggregation=mean"},
        {"{mode: bsp, weighting: uniform, aggregation: trimmed_mean}", "trim=0.3"},
        {"{mode: quorum, weighting: uniform, aggregation: trimmed_mean, trim: 0.4}", "trim=0.1"}}) {
    const std::string text = absl::StrCat("cluster: {workers: 5}\noptimizer: {kind: adam}\nconsistency: ", settings);
    const std::string setting = absl::StrCat("consistency.", next);
    const absl::StatusOr<job::Job> read = ParseJob(text, "j.yaml");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(RenderNext(Resolve(*read), {"slackline train j.yaml"}, "runs/a"), HasSubstr("--set " + setting));
    EXPECT_TRUE(ParseJob(text, "j.yaml", {setting}).ok()) << setting;
  }
}

wire::JobStatus Detailed() {
  wire::JobStatus status;
  status.mutable_asynchrony()->set_mode("ssp");
  status.mutable_asynchrony()->set_slack_bound(4);
  for (uint64_t i = 0; i < 2; ++i) {
    wire::WorkerView& worker = *status.add_workers();
    worker.set_name(i == 0 ? "w-1" : "w-2\x1b[2J\xc2\x9b\nx");
    worker.set_state("live");
    worker.set_clock(100 + 4 * i);
    worker.set_slack(4 * i);
    worker.set_host("node1");
  }
  wire::StalenessBucket& bucket = *status.mutable_asynchrony()->add_staleness();
  bucket.set_from(1);
  bucket.set_to(1);
  bucket.set_answers(1234);
  wire::ServerView& server = *status.add_servers();
  server.set_name("ps-1");
  server.set_shards(3);
  server.set_bytes(3 << 20);
  server.mutable_backup()->set_name("ps-2");
  return status;
}

TEST(RenderDetails, ShowsClocksStalenessShardsAndWhatIsWrong) {
  wire::JobStatus status = Detailed();
  const std::string healthy = RenderDetails(status, "");
  EXPECT_THAT(healthy, HasSubstr("\nalerts: none\n"));
  EXPECT_THAT(healthy, HasSubstr("| is the bound (ssp)\n  w-1                                      |      100  +0 "));
  EXPECT_THAT(healthy, HasSubstr("    1  ############################## 1,234\n"));
  EXPECT_THAT(healthy, HasSubstr("  3 shards    3.0 MiB "));
  EXPECT_THAT(healthy, HasSubstr(", replica ps-2 is catching up\n"));
  EXPECT_THAT(healthy, HasSubstr("no checkpoint yet\n"));
  wire::Alert& alert = *status.add_alerts();
  alert.set_severity("critical");
  alert.set_text("no worker is live");
  EXPECT_THAT(RenderDetails(status, "http://127.0.0.1:80/"),
              testing::AllOf(HasSubstr("alerts\n  critical: no worker is live\n"),
                             HasSubstr("status page http://127.0.0.1:80/\n")));
}

TEST(RenderDetails, NamesDoNothingToTheTerminal) {
  const std::string text = RenderDetails(Detailed(), "");
  EXPECT_THAT(text, HasSubstr("w-2\\x1b[2J"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(PrintableLines("a\x07\nb"), "a\\x07\nb");
}

TEST(RenderDetails, OfAThousandWorkersTheSlowestAreShown) {
  wire::JobStatus status;
  for (uint64_t i = 0; i < 1000; ++i) {
    wire::WorkerView& worker = *status.add_workers();
    worker.set_name(absl::StrCat("w-", i));
    worker.set_state("live");
    worker.set_slack(1000 - i);
  }
  const std::string text = RenderDetails(status, "");
  EXPECT_THAT(text, HasSubstr("  w-999 "));
  EXPECT_THAT(text, HasSubstr("  and 968 more\n"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60);
}

}  // namespace
}  // namespace slackline::cli::view_test
