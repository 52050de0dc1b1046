#include "scheduler/record/run_summary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "figure_options.pb.h"
#include "scheduler.pb.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler::run_summary_test {
namespace {

using Json = nlohmann::json;

TEST(RunSummary, WhatWasNeverMeasuredIsNull) {
  const Json json = Json::parse(ToJson({}));
  for (const char* key :
       {"loss", "test_accuracy", "test_loss", "best_test_accuracy", "top5_accuracy", "energy", "tokens"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  EXPECT_EQ(json.at("samples_per_second"), 0);
  EXPECT_EQ(json.at("evaluations"), Json::array());
  EXPECT_EQ(json.at("staleness").at("histogram"), Json::array());
}

TEST(RunSummary, LastEvaluationIsNotAlwaysTheBest) {
  RunSummary summary;
  summary.evaluations = {{1, 2.5, 100, 90, 0.5, 1.5}, {2, 5, 200, 190, 0.75, 1}, {3, 7.5, 300, 290, 0.625, 1.25}};
  summary.evaluations[1].tested = 10;
  summary.evaluations[1].seconds = 2.5;
  const Json json = Json::parse(ToJson(summary));
  EXPECT_TRUE(json.at("evaluations")[0].at("seconds_per_sample").is_null());
  EXPECT_EQ(json.at("test_accuracy"), 0.625);
  EXPECT_EQ(json.at("test_loss"), 1.25);
  EXPECT_EQ(json.at("best_test_accuracy"), 0.75);
  EXPECT_EQ(json.at("evaluations")[1], Json({{"epoch", 2},
                                             {"time_s", 5},
                                             {"samples", 200},
                                             {"samples_applied", 190},
                                             {"accuracy", 0.75},
                                             {"loss", 1},
                                             {"tested", 10},
                                             {"seconds", 2.5},
                                             {"seconds_per_sample", 0.25},
                                             {"apart", false},
                                             {"values", Json::object()}}));
}

TEST(RunSummary, AnEvaluationOfOtherImagesIsTheLastAndNotTheBest) {
  RunSummary summary;
  summary.evaluations = {{.epoch = 1, .accuracy = 0.5}, {.epoch = 2, .accuracy = 0.75, .apart = true}};
  const Json json = Json::parse(ToJson(summary));
  EXPECT_EQ(json.at("test_accuracy"), 0.75);
  EXPECT_EQ(json.at("best_test_accuracy"), 0.5);
  EXPECT_EQ(json.at("evaluations")[1].at("apart"), true);
}

TEST(RunSummary, RatesAndMeansAreOfTheWholeRun) {
  RunSummary summary;
  summary.time_s = 5;
  summary.train_s = 4;
  summary.totals.set_samples(1000);
  summary.tokens_per_sample = 64;
  summary.totals.set_staleness_sum(10);
  summary.totals.set_staleness_answers(4);
  summary.staleness.AddToBucket(2, 3);
  summary.staleness.Add(100);
  const Json json = Json::parse(ToJson(summary));
  EXPECT_EQ(json.at("samples_per_second"), 250);
  EXPECT_EQ(json.at("tokens"), 64000);
  EXPECT_EQ(json.at("staleness").at("mean"), 2.5);
  EXPECT_EQ(json.at("staleness").at("histogram"), Json::parse("[[2, 3], [64, 1]]"));
}

TEST(RunSummary, FiguresOfWorkersStandInOneOrder) {
  RunSummary summary;
  state::Totals& totals =
      summary.worker_list.emplace_back(WorkerSummary{.name = "w-1", .state = "left", .totals = {}}).totals;
  totals.set_pulled_bytes(uint64_t{1} << 63);
  totals.set_wait_seconds(0.5);
  const auto json = nlohmann::ordered_json::parse(ToJson(summary));
  EXPECT_EQ(json.at("worker_list").dump(),
            R"([{"name":"w-1","state":"left","slowdown":1.0,"samples":0,"steps":0,"compute_seconds":0.0,)"
            R"("wait_seconds":0.5,"data_seconds":0.0,"push_seconds":0.0,"pull_seconds":0.0,"local_steps":0,)"
            R"("pushes_applied":0,"pushes_discarded":0,"pushes_quarantined":0,"pushes_lost":0,"pushed_bytes":0,)"
            R"("pulled_bytes":9223372036854775808}])");
}

TEST(RunSummary, EnergyIsOfPhasesAndDevices) {
  RunSummary summary;
  summary.top5_accuracy = 0.96875;
  wire::EnergyView& energy = summary.energy.emplace();
  energy.set_total_joules(12);
  energy.set_edp_joule_seconds(120);
  energy.mutable_joules()->set_training(8);
  energy.mutable_joules()->set_validation(2);
  energy.mutable_joules()->set_test(1);
  energy.mutable_joules()->set_other(1);
  wire::DeviceCount& device = *energy.add_devices();
  device.set_node("n1");
  device.set_device("package-0");
  device.mutable_joules()->set_training(12);
  device.set_seconds(4);
  device.set_watts_min(1);
  device.set_watts_max(5);
  *energy.add_devices() = device;
  energy.mutable_devices(1)->set_device("gpu-0000:65:00.0");
  energy.mutable_devices(1)->set_idle_watts(0.5);
  energy.mutable_devices(1)->clear_watts_min();
  energy.mutable_devices(1)->clear_seconds();
  const Json json = Json::parse(ToJson(summary));
  EXPECT_EQ(json.at("top5_accuracy"), 0.96875);
  EXPECT_EQ(json.at("energy"),
            Json::parse(R"({"joules": 12, "edp": 120, "training": 8, "validation": 2, "test": 1, "other": 1,
                            "above_idle": null,
                            "devices": [{"node": "n1", "device": "package-0", "joules": 12, "mean_watts": 3,
                                         "min_watts": 1, "max_watts": 5, "idle_watts": null},
                                        {"node": "n1", "device": "gpu-0000:65:00.0", "joules": 12, "mean_watts": null,
                                         "min_watts": null, "max_watts": 5, "idle_watts": 0.5}]})"));
  energy.set_above_idle_joules(7);
  EXPECT_EQ(Json::parse(ToJson(summary)).at("energy").at("above_idle"), 7);
}

TEST(RunSummary, OfObjectsThereIsNoLoss) {
  RunSummary summary;
  summary.evaluations.push_back({.epoch = 1, .time_s = 2, .samples = 3, .accuracy = 0.25, .loss = 0});
  EXPECT_EQ(Json::parse(ToJson(summary)).at("test_metric"), "accuracy");
  EXPECT_TRUE(Json::parse(ToJson(summary)).at("test_map_50").is_null());
  summary.objects = {.map_50 = 0.5, .mask_map = 0.125, .mask_map_50 = std::nullopt};
  const Json json = Json::parse(ToJson(summary));
  EXPECT_EQ(json.at("test_metric"), "map");
  EXPECT_EQ(json.at("test_accuracy"), 0.25);
  EXPECT_EQ(json.at("test_map_50"), 0.5);
  EXPECT_EQ(json.at("test_mask_map"), 0.125);
  EXPECT_TRUE(json.at("test_mask_map_50").is_null());
  EXPECT_TRUE(json.at("test_loss").is_null());
  EXPECT_TRUE(json.at("evaluations")[0].at("loss").is_null());
}

TEST(RunSummary, AnAccuracyThatWasNotMeasuredIsNull) {
  RunSummary summary;
  summary.evaluations.push_back({.epoch = 1, .accuracy = std::nullopt, .loss = 0.5});
  Json json = Json::parse(ToJson(summary));
  EXPECT_EQ(json.at("test_loss"), 0.5);
  for (const char* key : {"test_accuracy", "best_test_accuracy"}) EXPECT_TRUE(json.at(key).is_null()) << key;
  EXPECT_TRUE(json.at("evaluations")[0].at("accuracy").is_null());
  summary.evaluations.insert(summary.evaluations.begin(), {.epoch = 1, .accuracy = 0.25, .loss = 0.75});
  json = Json::parse(ToJson(summary));
  EXPECT_TRUE(json.at("test_accuracy").is_null());
  EXPECT_EQ(json.at("best_test_accuracy"), 0.25);
}

TEST(RunSummary, FiguresOfAScriptHaveTheirNames) {
  RunSummary summary;
  summary.evaluations.push_back({.epoch = 1, .loss = std::nullopt, .values = {{"f1", 0.5}, {"perplexity", 20.5}}});
  summary.metric.set_name("perplexity");
  summary.metric.set_lower_is_better(true);
  summary.metric.set_last(20.5);
  const Json json = Json::parse(ToJson(summary));
  EXPECT_EQ(json.at("evaluations")[0].at("values"), Json({{"f1", 0.5}, {"perplexity", 20.5}}));
  EXPECT_TRUE(json.at("test_loss").is_null());
  EXPECT_EQ(json.at("metric"), Json({{"name", "perplexity"}, {"better", "lower"}, {"last", 20.5}, {"best", nullptr}}));
}

TEST(RunSummary, EveryFigureThatItShowsHasATotal) {
  const google::protobuf::Descriptor& report = *wire::WorkerProgress::descriptor();
  for (int i = 0; i < report.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *report.field(i);
    if (!field.options().GetExtension(wire::in_summary)) continue;
    const google::protobuf::FieldDescriptor* const total = state::Totals::descriptor()->FindFieldByName(field.name());
    ASSERT_NE(total, nullptr) << field.name() << " is in_summary, and state.Totals has no such field";
    EXPECT_EQ(total->type(), field.type()) << field.name();
  }
}

TEST(RunSummary, NamesThatAreNoUtf8AreWrittenNevertheless) {
  RunSummary summary;
  summary.worker_list.push_back({.name = "w-\xff", .state = "dead", .slowdown = 12, .totals = {}});
  EXPECT_EQ(Json::parse(ToJson(summary)).at("worker_list")[0].at("slowdown"), 12);
}

}  // namespace
}  // namespace slackline::scheduler::run_summary_test
