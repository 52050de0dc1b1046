#include "scheduler/record/run_summary.h"
#include "common/text/json_text.h"

#include <algorithm>
#include <utility>

#include <google/protobuf/descriptor.h>
#include <nlohmann/json.hpp>

namespace slackline::scheduler {
namespace {

// Keys in the order in which people read them.
using Json = nlohmann::ordered_json;

double Ratio(double sum, double count) { return count > 0 ? sum / count : 0; }

// [[staleness, answers], ...] of the buckets that hold something.
Json Histogram(const StalenessCounts& counts) {
  Json histogram = Json::array();
  for (size_t i = 0; i < counts.used(); ++i) {
    if (counts.InBucket(i) > 0) histogram.push_back({StalenessCounts::StalenessOf(i), counts.InBucket(i)});
  }
  return histogram;
}

Json Staleness(const RunSummary& summary) {
  const state::Totals& totals = summary.totals;
  return {{"mean", Ratio(static_cast<double>(totals.staleness_sum()), static_cast<double>(totals.staleness_answers()))},
          {"max", summary.staleness_max},
          {"histogram", Histogram(summary.staleness)},
          {"bound", summary.staleness_bound ? Json(*summary.staleness_bound) : Json(nullptr)},
          {"bound_changes", summary.staleness_bound_changes}};
}

Json Worker(const WorkerSummary& worker) {
  Json json = {{"name", worker.name}, {"state", worker.state}, {"slowdown", worker.slowdown}};
  const google::protobuf::Reflection& totals = *worker.totals.GetReflection();
  for (const Figure& figure : Figures()) {
    if (!figure.in_summary) continue;
    const bool whole = figure.total->cpp_type() == figure.total->CPPTYPE_UINT64;
    json[figure.total->name()] = whole ? Json(totals.GetUInt64(worker.totals, figure.total))
                                       : Json(totals.GetDouble(worker.totals, figure.total));
  }
  return json;
}

// Returns the number; null for one that was never measured.
Json Number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// Returns the number; null for one that is not known.
Json IfKnown(bool known, double value) { return known ? Json(value) : Json(nullptr); }

Json Evaluation(const EvaluationSummary& evaluation) {
  return {{"epoch", evaluation.epoch},
          {"time_s", evaluation.time_s},
          {"samples", evaluation.samples},
          {"samples_applied", evaluation.samples_applied},
          {"accuracy", Number(evaluation.accuracy)},
          {"loss", Number(evaluation.loss)},
          {"tested", evaluation.tested},
          {"seconds", evaluation.seconds},
          {"seconds_per_sample", IfKnown(evaluation.tested > 0 && evaluation.seconds > 0,
                                         Ratio(evaluation.seconds, static_cast<double>(evaluation.tested)))},
          {"apart", evaluation.apart},
          {"values", evaluation.values}};
}

Json Energy(const std::optional<wire::EnergyView>& energy) {
  if (!energy) return nullptr;
  Json devices = Json::array();
  for (const wire::DeviceCount& device : energy->devices()) {
    devices.push_back({{"node", device.node()},
                       {"device", device.device()},
                       {"joules", Total(device.joules())},
                       {"mean_watts", Number(MeanWatts(device))},
                       {"min_watts", IfKnown(device.has_watts_min(), device.watts_min())},
                       {"max_watts", IfKnown(device.has_watts_max(), device.watts_max())},
                       {"idle_watts", IfKnown(device.has_idle_watts(), device.idle_watts())}});
  }
  const wire::PhaseJoules& joules = energy->joules();
  return {{"joules", energy->total_joules()},
          {"edp", energy->edp_joule_seconds()},
          {"training", joules.training()},
          {"validation", joules.validation()},
          {"test", joules.test()},
          {"other", joules.other()},
          {"above_idle", IfKnown(energy->has_above_idle_joules(), energy->above_idle_joules())},
          {"devices", std::move(devices)}};
}

template <typename Value>
Json List(const std::vector<Value>& values, Json (*convert)(const Value&)) {
  Json list = Json::array();
  for (const Value& value : values) list.push_back(convert(value));
  return list;
}

// What was never measured is null.
void AddAccuracy(const std::vector<EvaluationSummary>& evaluations, Json& json) {
  for (const char* key : {"test_accuracy", "test_loss", "best_test_accuracy"}) json[key] = nullptr;
  if (evaluations.empty()) return;
  json["test_accuracy"] = Number(evaluations.back().accuracy);
  json["test_loss"] = Number(evaluations.back().loss);
  // An absent accuracy is less than any other, and so is that of other images.
  const auto comparable = [](const EvaluationSummary& one) { return one.apart ? std::nullopt : one.accuracy; };
  const auto less = [&](const EvaluationSummary& a, const EvaluationSummary& b) {
    return comparable(a) < comparable(b);
  };
  json["best_test_accuracy"] = Number(std::max_element(evaluations.begin(), evaluations.end(), less)->accuracy);
}

Json Metric(const wire::JobMetric& metric) {
  return {{"name", metric.name()},
          {"better", metric.lower_is_better() ? "lower" : "higher"},
          {"last", metric.has_last() ? Json(metric.last()) : Json(nullptr)},
          {"best", metric.has_best() ? Json(metric.best()) : Json(nullptr)}};
}

// What accuracies are, and what else there is of objects that were found.
void AddObjects(const std::optional<ObjectsSummary>& objects, Json& json) {
  json["test_metric"] = objects ? "map" : "accuracy";
  json["test_map_50"] = objects ? Json(objects->map_50) : Json(nullptr);
  json["test_mask_map"] = objects ? Number(objects->mask_map) : Json(nullptr);
  json["test_mask_map_50"] = objects ? Number(objects->mask_map_50) : Json(nullptr);
  if (!objects) return;
  json["test_loss"] = nullptr;
  for (Json& evaluation : json["evaluations"]) evaluation["loss"] = nullptr;
}

}  // namespace

std::string ToJson(const RunSummary& summary) {
  Json json = {{"name", summary.name},
               {"state", summary.state},
               {"reason", summary.reason},
               {"mode", summary.mode},
               {"optimizer", summary.optimizer},
               {"seed", summary.seed},
               {"workers", summary.workers},
               {"servers", summary.servers},
               {"epochs", summary.epochs},
               {"epochs_done", summary.epochs_done},
               {"time_s", summary.time_s},
               {"train_s", summary.train_s},
               {"samples", summary.totals.samples()},
               {"samples_applied", summary.totals.samples_applied()},
               {"epoch_samples", summary.epoch_samples},
               {"steps", summary.totals.steps()},
               {"samples_per_second", Ratio(static_cast<double>(summary.totals.samples()), summary.train_s)},
               {"loss", Number(summary.loss)}};
  const uint32_t tokens = summary.tokens_per_sample;
  json["tokens"] = tokens > 0 ? Json(uint64_t{tokens} * summary.totals.samples()) : Json(nullptr);
  AddAccuracy(summary.evaluations, json);
  json["metric"] = Metric(summary.metric);
  json["top5_accuracy"] = Number(summary.top5_accuracy);
  json["energy"] = Energy(summary.energy);
  json["staleness"] = Staleness(summary);
  json["slack_max"] = summary.slack_max;
  json["divergences"] = summary.divergences;
  json["deaths"] = summary.worker_deaths;
  json["samples_given_twice"] = summary.samples_given_twice;
  json["worker_list"] = List(summary.worker_list, Worker);
  json["evaluations"] = List(summary.evaluations, Evaluation);
  AddObjects(summary.objects, json);
  // Names come from outside: what is not UTF-8 is replaced, not thrown about.
  return DumpJson(json, 2) + "\n";
}

}  // namespace slackline::scheduler
