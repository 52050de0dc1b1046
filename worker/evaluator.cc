#include "worker/evaluator.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "common/storage/durable_file.h"
#include "worker/model/safetensors.h"

namespace slackline::worker {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kWeightsFile[] = "model.safetensors";
constexpr char kReportFile[] = "report.json";
constexpr char kConfusionFile[] = "confusion.csv";

// What report.json has of objects, in the place of or behind the rest.
Json Objects(const EvaluationResult& result) {
  const ObjectMetrics& objects = *result.metrics.objects;
  Json classes = Json::array();
  for (size_t i = 0; i < objects.labels.size(); ++i) {
    const ClassMetrics& one = result.metrics.classes[i];
    const ClassPrecision& boxes = objects.class_boxes[i];
    Json entry = {{"label", objects.labels[i]},
                  {"name", result.class_names[i]},
                  {"samples", one.samples},
                  {"ap", boxes.ap},
                  {"ap_50", boxes.ap_50}};
    if (objects.masks) {
      entry["mask_ap"] = objects.class_masks[i].ap;
      entry["mask_ap_50"] = objects.class_masks[i].ap_50;
    }
    entry["precision"] = one.precision;
    entry["recall"] = one.recall;
    entry["f1"] = one.f1;
    classes.push_back(std::move(entry));
  }
  const auto mask = [&](double MeanPrecision::*figure) {
    return objects.masks ? Json(*objects.masks.*figure) : Json();
  };
  Json report = {{"map", objects.boxes.map},
                 {"map_50", objects.boxes.map_50},
                 {"mask_map", mask(&MeanPrecision::map)},
                 {"mask_map_50", mask(&MeanPrecision::map_50)}};
  report["classes"] = std::move(classes);
  return report;
}

std::string ToJson(const EvaluationResult& result) {
  const Metrics& metrics = result.metrics;
  Json classes = Json::array();
  for (size_t i = 0; i < metrics.classes.size(); ++i) {
    const ClassMetrics& one = metrics.classes[i];
    classes.push_back({{"label", i},
                       {"name", result.class_names[i]},
                       {"samples", one.samples},
                       {"precision", one.precision},
                       {"recall", one.recall},
                       {"f1", one.f1}});
  }
  Json report = {{"epoch", result.work.epoch},
                 {"samples", metrics.samples},
                 {"loss", metrics.objects ? Json() : Json(result.loss)},
                 {"accuracy", metrics.accuracy},
                 {"top5_accuracy", metrics.top5_accuracy ? Json(*metrics.top5_accuracy) : nullptr},
                 {"precision_macro", metrics.precision_macro},
                 {"recall_macro", metrics.recall_macro},
                 {"f1_macro", metrics.f1_macro},
                 {"f1_micro", metrics.f1_micro},
                 {"f1_weighted", metrics.f1_weighted},
                 {"classes", classes}};
  if (metrics.objects) report.update(Objects(result));
  return report.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

// As RFC 4180 has it.
std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// A row a label, a column a prediction, in samples.
std::string ConfusionCsv(const EvaluationResult& result) {
  std::string csv = "label";
  for (const std::string& name : result.class_names) absl::StrAppend(&csv, ",", CsvCell(name));
  const std::vector<uint64_t>& counts = result.metrics.confusion;
  const size_t classes = result.class_names.size();
  for (size_t label = 0; label < classes; ++label) {
    absl::StrAppend(&csv, "\n", CsvCell(result.class_names[label]), ",",
                    absl::StrJoin(absl::MakeConstSpan(counts).subspan(label * classes, classes), ","));
  }
  return csv + "\n";
}

absl::Status MakeFolder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  const std::string why = absl::StrCat("cannot make ", folder.string(), ": ", error.message());
  return error == std::errc::no_space_on_device ? absl::ResourceExhaustedError(why) : absl::UnavailableError(why);
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  DurableFile file(path);
  absl::Status status = file.Open();
  if (status.ok()) status = file.Write(text.data(), text.size());
  if (status.ok()) status = file.Commit();
  return status;
}

std::vector<uint32_t> Indices(uint64_t begin, uint64_t end) {
  std::vector<uint32_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), static_cast<uint32_t>(begin));
  return indices;
}

}  // namespace

absl::Status Evaluator::Load(uint64_t begin, Prefetcher* ahead) {
  if (ahead == nullptr) {
    return test_.Load(Indices(begin, std::min(test_.size(), begin + options_.batch_size)), options_.normalisation.mean,
                      options_.normalisation.deviation, *batch_);
  }
  if (batch_ != nullptr) ahead->Recycle(std::move(batch_));
  absl::StatusOr<std::unique_ptr<Batch>> batch = ahead->Next(options_.batch_max);
  if (!batch.ok()) {
    batch_ = std::make_unique<Batch>();
    return batch.status();
  }
  SLACKLINE_CHECK(*batch != nullptr);
  batch_ = *std::move(batch);
  return absl::OkStatus();
}

std::unique_ptr<Prefetcher> Evaluator::ReadAhead() const {
  if (options_.data_threads <= 1 || !test_.decoded()) return nullptr;
  auto ahead = std::make_unique<Prefetcher>(test_, options_.normalisation, options_.data_threads, Augment{}, /*seed=*/0,
                                            options_.data_threads);
  ahead->Start(Indices(0, test_.size()), options_.batch_size);
  return ahead;
}

absl::StatusOr<EvaluationResult> Evaluator::Evaluate(Model& model, const EvaluationWork& work,
                                                     const std::function<absl::Status()>& between) {
  if (test_.has_scenes()) return EvaluateScenes(model, work, between);
  ConfusionMatrix confusion(static_cast<uint32_t>(options_.class_names.size()));
  double loss_sum = 0;
  uint64_t top5 = 0;
  std::vector<int64_t> predictions;
  const std::unique_ptr<Prefetcher> ahead = ReadAhead();
  for (uint64_t begin = 0; begin < test_.size(); begin += options_.batch_size) {
    if (absl::Status loaded = Load(begin, ahead.get()); !loaded.ok()) return loaded;
    predictions.resize(batch_->size());
    const auto part = model.Evaluate({.images = batch_->images, .labels = batch_->labels}, absl::MakeSpan(predictions));
    if (!part.ok()) return part.status();
    confusion.Add(batch_->labels, predictions);
    loss_sum += part->loss * static_cast<double>(part->samples);
    top5 += part->correct_top5;
    const absl::Status go_on = between();
    if (!go_on.ok()) return go_on;
  }
  EvaluationResult result;
  result.work = work;
  result.metrics = confusion.ToMetrics();
  if (options_.class_names.size() >= kTop5Classes) {
    result.metrics.top5_accuracy = static_cast<double>(top5) / static_cast<double>(std::max<uint64_t>(1, test_.size()));
  }
  result.loss = loss_sum / static_cast<double>(std::max<uint64_t>(1, test_.size()));
  result.class_names = options_.class_names;
  return result;
}

absl::Status Evaluator::WriteFiles(Model& model, EvaluationResult& result) const {
  const std::filesystem::path folder(result.work.run_folder);
  if (absl::Status made = MakeFolder(folder); !made.ok()) return made;
  const absl::Status weights = WriteSafetensors(
      folder / kWeightsFile, model.tensors(), model.parameters(),
      {{"epoch", absl::StrCat(result.work.epoch)}, {"test_accuracy", absl::StrCat(result.metrics.accuracy)}});
  if (!weights.ok()) return weights;
  const absl::Status report = WriteReport(result);
  if (report.ok()) result.files = {kWeightsFile, kReportFile};
  if (report.ok() && !result.metrics.objects) result.files.emplace_back(kConfusionFile);
  return report;
}

absl::Status Evaluator::WriteReport(const EvaluationResult& result) const {
  const std::filesystem::path folder(result.work.run_folder);
  if (absl::Status made = MakeFolder(folder); !made.ok()) return made;
  const absl::Status report = WriteWhole(folder / kReportFile, ToJson(result));
  if (!report.ok() || result.metrics.objects) return report;
  return WriteWhole(folder / kConfusionFile, ConfusionCsv(result));
}

}  // namespace slackline::worker
