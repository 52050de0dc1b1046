#include "worker/evaluation/evaluator.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/storage/durable_file.h"
#include "common/text/csv_text.h"
#include "common/text/json_text.h"
#include "worker/evaluation/average_precision.h"
#include "worker/model/weights/safetensors.h"

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
  const EvaluationMetrics& metrics = result.metrics;
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
                 {"loss", metrics.objects ? Json() : Json(result.loss.value_or(0))},
                 {"accuracy", metrics.accuracy ? Json(*metrics.accuracy) : nullptr},
                 {"top5_accuracy", metrics.top5_accuracy ? Json(*metrics.top5_accuracy) : nullptr},
                 {"precision_macro", metrics.precision_macro},
                 {"recall_macro", metrics.recall_macro},
                 {"f1_macro", metrics.f1_macro},
                 {"f1_micro", metrics.f1_micro},
                 {"f1_weighted", metrics.f1_weighted},
                 {"classes", classes}};
  if (metrics.objects) report.update(Objects(result));
  return DumpJson(report, 2) + "\n";
}

// A row a label, a column a prediction, in samples.
std::string ConfusionCsv(const EvaluationResult& result) {
  std::string csv = "label";
  for (const std::string& name : result.class_names) absl::StrAppend(&csv, ",", CsvText(name));
  const std::vector<uint64_t>& counts = result.metrics.confusion;
  const size_t classes = result.class_names.size();
  for (size_t label = 0; label < classes; ++label) {
    absl::StrAppend(&csv, "\n", CsvText(result.class_names[label]), ",",
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

std::vector<uint32_t> All(uint64_t size) {
  std::vector<uint32_t> indices(size);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// The same ones each time; labels that take turns are all among them.
std::vector<uint32_t> Drawn(uint64_t size, uint64_t most) {
  if (most == 0 || most >= size) return All(size);
  std::vector<uint32_t> indices = images::EpochOrder(size, /*seed=*/0, /*epoch=*/0);
  indices.resize(most);
  return indices;
}

constexpr size_t kBoxSides = 4;

void AddBoxes(const images::Scene& scene, const images::DetectedObjects& found, AveragePrecision& boxes) {
  const absl::Span<const float> all_found = found.boxes, all_truth = scene.boxes;
  boxes.Add({.truth = scene.labels, .crowd = scene.crowd, .found = found.labels, .scores = found.scores},
            [&](const AveragePrecision::Pair& pair) {
              const bool crowd = !scene.crowd.empty() && scene.crowd[pair.truth] != 0;
              return BoxOverlap(all_found.subspan(kBoxSides * pair.found, kBoxSides),
                                all_truth.subspan(kBoxSides * pair.truth, kBoxSides), crowd);
            });
}

void AddMasks(const images::Scene& scene, const images::DetectedObjects& found, AveragePrecision& masks) {
  const size_t plane = size_t{scene.height} * scene.width;
  const absl::Span<const uint8_t> all_found = found.masks, all_truth = scene.masks;
  masks.Add({.truth = scene.labels, .crowd = scene.crowd, .found = found.labels, .scores = found.scores},
            [&](const AveragePrecision::Pair& pair) {
              const bool crowd = !scene.crowd.empty() && scene.crowd[pair.truth] != 0;
              return MaskOverlap(all_found.subspan(plane * pair.found, plane),
                                 all_truth.subspan(plane * pair.truth, plane), crowd);
            });
}

}  // namespace

void Evaluator::UseMemory(images::BatchMemory* memory) {
  memory_ = memory;
  batch_ = images::NewBatch(memory);
}

absl::Status Evaluator::Load(const images::Dataset& images, absl::Span<const uint32_t> indices,
                             images::Prefetcher* ahead) {
  if (ahead == nullptr) {
    return images.Load(indices, options_.normalisation.mean, options_.normalisation.deviation, *batch_);
  }
  if (batch_ != nullptr) ahead->Recycle(std::move(batch_));
  absl::StatusOr<std::unique_ptr<images::Batch>> batch = ahead->Next(options_.batch_max);
  if (!batch.ok()) {
    batch_ = images::NewBatch(memory_);
    return batch.status();
  }
  SLACKLINE_CHECK(*batch != nullptr);
  batch_ = *std::move(batch);
  return absl::OkStatus();
}

absl::Status Evaluator::ForEachBatch(const images::Dataset& images, const std::vector<uint32_t>& indices,
                                     const std::function<absl::Status()>& between,
                                     const std::function<absl::Status(const images::Batch&)>& use) {
  if (absl::Status here = images.Fetch(indices, between); !here.ok()) return here;
  std::unique_ptr<images::Prefetcher> ahead;
  if (options_.data_threads > 1 && images.decoded()) {
    ahead = std::make_unique<images::Prefetcher>(images, options_.normalisation, options_.data_threads,
                                                 images::Augment{}, /*seed=*/0, options_.data_threads);
    ahead->UseMemory(memory_);
    ahead->Start(indices, options_.batch_size);
  }
  const absl::Span<const uint32_t> all = indices;
  for (size_t begin = 0; begin < all.size(); begin += options_.batch_size) {
    absl::Status status = Load(images, all.subspan(begin, options_.batch_size), ahead.get());
    if (status.ok()) status = use(*batch_);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<EvaluationResult> Evaluator::Evaluate(Model& model, const EvaluationWork& work,
                                                     const std::function<absl::Status()>& between) {
  if (test_.has_scenes()) return EvaluateScenes(model, work, between);
  const images::Dataset& images = work.final && options_.last_test != nullptr ? *options_.last_test : test_;
  ConfusionMatrix confusion(static_cast<uint32_t>(options_.class_names.size()));
  double loss_sum = 0;
  uint64_t top5 = 0;
  std::vector<int64_t> predictions;
  absl::Status status;
  model.Forget();
  if (options_.neighbours != nullptr) {
    const auto remember = [&](const images::Batch& batch) {
      const absl::Status kept = model.Remember({.images = batch.images, .labels = batch.labels});
      return kept.ok() ? between() : kept;
    };
    status = ForEachBatch(*options_.neighbours, Drawn(options_.neighbours->size(), options_.neighbours_max), between,
                          remember);
  }
  const auto measure = [&](const images::Batch& batch) {
    predictions.resize(batch.size());
    const auto part = model.Evaluate({.images = batch.images, .labels = batch.labels}, absl::MakeSpan(predictions));
    if (!part.ok()) return part.status();
    confusion.Add(batch.labels, predictions);
    loss_sum += part->loss * static_cast<double>(part->samples);
    top5 += part->correct_top5;
    return between();
  };
  if (status.ok()) status = ForEachBatch(images, All(images.size()), between, measure);
  model.Forget();
  if (!status.ok()) return status;
  EvaluationResult result;
  result.work = work;
  result.metrics = confusion.ToMetrics();
  if (options_.class_names.size() >= kTop5Classes) {
    result.metrics.top5_accuracy =
        static_cast<double>(top5) / static_cast<double>(std::max<uint64_t>(1, images.size()));
  }
  result.loss = loss_sum / static_cast<double>(std::max<uint64_t>(1, images.size()));
  result.class_names = options_.class_names;
  return result;
}

absl::Status Evaluator::WriteFiles(Model& model, EvaluationResult& result) const {
  const std::filesystem::path folder(result.work.run_folder);
  if (absl::Status made = MakeFolder(folder); !made.ok()) return made;
  const absl::Status weights =
      WriteSafetensors(folder / kWeightsFile, model.tensors(), model.parameters(), WeightsMetadata(result));
  if (!weights.ok()) return weights;
  const absl::Status report = WriteReport(result);
  if (report.ok()) result.files = {kWeightsFile, kReportFile};
  if (report.ok() && !result.metrics.confusion.empty()) result.files.emplace_back(kConfusionFile);
  return report;
}

absl::Status Evaluator::WriteReport(const EvaluationResult& result) const {
  const std::filesystem::path folder(result.work.run_folder);
  if (absl::Status made = MakeFolder(folder); !made.ok()) return made;
  const absl::Status report = WriteWhole(folder / kReportFile, ToJson(result));
  if (!report.ok() || result.metrics.confusion.empty()) return report;
  return WriteWhole(folder / kConfusionFile, ConfusionCsv(result));
}

absl::StatusOr<EvaluationResult> Evaluator::EvaluateScenes(Model& model, const EvaluationWork& work,
                                                           const std::function<absl::Status()>& between) {
  const auto classes = static_cast<uint32_t>(options_.class_names.size());
  AveragePrecision boxes(classes), masks(classes);
  bool all_masks = true;
  const auto measure = [&](const images::Batch& batch) -> absl::Status {
    const absl::StatusOr<std::vector<images::DetectedObjects>> found = model.Detect(batch.scenes);
    if (!found.ok()) return found.status();
    SLACKLINE_CHECK(found->size() == batch.scenes.size());
    for (size_t i = 0; i < found->size(); ++i) {
      const images::Scene& scene = batch.scenes[i];
      const images::DetectedObjects& one = (*found)[i];
      AddBoxes(scene, one, boxes);
      all_masks = all_masks && scene.has_masks && one.has_masks;
      if (all_masks) AddMasks(scene, one, masks);
    }
    return between();
  };
  std::vector<uint32_t> all(test_.size());
  std::iota(all.begin(), all.end(), 0);
  if (absl::Status status = ForEachBatch(test_, all, between, measure); !status.ok()) return status;
  EvaluationResult result;
  result.work = work;
  result.metrics = MetricsOfObjects(test_.size(), boxes, all_masks ? &masks : nullptr);
  for (const uint32_t label : result.metrics.objects->labels) result.class_names.push_back(options_.class_names[label]);
  return result;
}

}  // namespace slackline::worker
