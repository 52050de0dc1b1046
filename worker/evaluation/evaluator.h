// Measures a model on all test images, and writes the final weights and figures into the run folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "images/dataset/dataset.h"
#include "images/dataset/prefetcher.h"
#include "worker/evaluation/evaluation.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Thread-safety: none.
// Ownership:     borrows the test images.
class Evaluator {
 public:
  struct Options {
    images::Prefetcher::Normalisation normalisation;
    uint32_t batch_size = 500;
    std::vector<std::string> class_names;  // name of each class
    // Number of threads. With several, this many threads beside the caller prepare batches ahead, at most as many
    // batches at a time, if images are decoded on demand. `batch_max` is the timeout for each batch, see
    // Prefetcher::Next().
    uint32_t data_threads = 1;
    absl::Duration batch_max = absl::Minutes(2);
    // Images whose labels vote, for a model that learns without labels; they outlive this. Null: the model has a
    // classifier.
    const images::Dataset* neighbours = nullptr;
    // Number of `neighbours` that vote, drawn from all of them; 0: all.
    uint32_t neighbours_max = 0;
    // Images of the last evaluation, if they are others; they outlive this.
    const images::Dataset* last_test = nullptr;
  };

  Evaluator(const images::Dataset& test, Options options) : test_(test), options_(std::move(options)) {}

  // Puts the images of batches into `memory`, which outlives this. Null, or without this call: anywhere.
  void UseMemory(images::BatchMemory* memory);

  // Runs forward over all test images, with the current parameters of the model. `between` is called after each batch;
  // an error from it ends the evaluation.
  absl::StatusOr<EvaluationResult> Evaluate(Model& model, const EvaluationWork& work,
                                            const std::function<absl::Status()>& between);

  // Writes model.safetensors, report.json and, if there is a confusion matrix, confusion.csv into work.run_folder, and
  // names them in `result`.
  //   kResourceExhausted, kUnavailable  see DurableFile
  absl::Status WriteFiles(Model& model, EvaluationResult& result) const;
  // Writes only report.json and confusion.csv.
  absl::Status WriteReport(const EvaluationResult& result) const;

 private:
  // Evaluates images with objects: mean average precisions, and no loss.
  absl::StatusOr<EvaluationResult> EvaluateScenes(Model& model, const EvaluationWork& work,
                                                  const std::function<absl::Status()>& between);
  // Gets the files of the images `indices` of `images`, while it calls `between`, and calls `use` for batches of them.
  absl::Status ForEachBatch(const images::Dataset& images, const std::vector<uint32_t>& indices,
                            const std::function<absl::Status()>& between,
                            const std::function<absl::Status(const images::Batch&)>& use);
  // Loads these images into batch_. `ahead`: prefetcher that prepares them, or null.
  absl::Status Load(const images::Dataset& images, absl::Span<const uint32_t> indices, images::Prefetcher* ahead);

  const images::Dataset& test_;
  const Options options_;
  images::BatchMemory* memory_ = nullptr;
  std::unique_ptr<images::Batch> batch_ = images::NewBatch(memory_);
};

}  // namespace slackline::worker
