#include "worker/evaluate_weights.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/data_formats.h"
#include "common/log/logging.h"
#include "worker/cuda/gpus.h"
#include "worker/evaluation/evaluator.h"
#include "worker/machine/devices.h"
#include "worker/model/weights/load_weights.h"
#include "worker/settings/loaded_job.h"

namespace slackline::worker {
namespace {

absl::StatusOr<std::unique_ptr<LocalGroup>> OneDevice(const ModelSpec& spec, const WorkerConfig& config) {
  const auto devices = ResolveDevices(config.devices, gpu::FindGpus(), "worker.devices");
  if (!devices.ok()) return devices.status();
  const Device& first = devices->front();
  if (first.kind == Device::Kind::kCuda)
    return gpu::MakeGroup(spec, config.seed, {first}, {.timeouts = config.trainer.timeouts});
  return LocalGroup::Create(
      spec, config.seed, {ToString(first)},
      {.timeouts = config.trainer.timeouts, .buckets = {}, .stages = 1, .micro_batches = 0, .trace = nullptr});
}

}  // namespace

absl::Status EvaluateWeights(const WeightsToEvaluate& what, WorkerConfig config) {
  const bool on_train = what.split == "train", label_free = config.model.self_supervised.on();
  if (on_train && label_free) {
    return absl::InvalidArgumentError(
        "--split: found train; allowed are test and validation: images are classified by their nearest training "
        "images, "
        "and each would be its own");
  }
  if (!what.split.empty() && !on_train) {
    const job::Data::Format format = config.data.settings.format();
    if (!job_file::Takes(format, job_file::kEvaluationSplit) && what.split != "test") {
      return absl::InvalidArgumentError(absl::StrCat("--split: found ", what.split, "; allowed are train and test: ",
                                                     job::Data::Format_Name(format), " files have no others"));
    }
    config.data.evaluation_split = what.split;
  }
  // Without a split, those of the run's last evaluation.
  if (what.split.empty() && !config.data.last_split.empty()) config.data.evaluation_split = config.data.last_split;
  config.data.last_split.clear();
  // Evaluations measure without class weights, and these images may have no training images of some class.
  config.class_weights_balanced = false;
  const absl::StatusOr<LoadedJob> data = LoadJob(config);
  if (!data.ok()) return data.status();
  SetComputeThreads(config.compute_threads);
  const auto group = OneDevice(data->spec, config);
  if (!group.ok()) return group.status();
  Model& model = (*group)->model();
  const auto drawn = LoadWeights(what.path, model.tensors(), model.parameters());
  if (!drawn.ok()) return drawn.status();
  if (!drawn->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what.path, ": found ", absl::StrJoin(*drawn, " and "),
                                                   " of another number of classes, or none; allowed are ",
                                                   data->spec.classes, ", as model.classes says"));
  }
  Evaluator evaluator(on_train ? data->train : data->test, {.normalisation = config.normalisation,
                                                            .batch_size = config.evaluation_batch_size,
                                                            .class_names = data->class_names,
                                                            .neighbours = label_free ? &data->train : nullptr,
                                                            .neighbours_max = config.neighbours_max});
  evaluator.UseMemory((*group)->batch_memory());
  auto result =
      evaluator.Evaluate(model, {.epoch = 0, .final = true, .run_folder = what.out}, [] { return absl::OkStatus(); });
  return result.ok() ? evaluator.WriteReport(*result) : result.status();
}

}  // namespace slackline::worker
