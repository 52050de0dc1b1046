// Measures a model on all test images, and leaves the final weights and figures in the run folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetcher.h"
#include "worker/model/model.h"
#include "worker/scheduler_link.h"

namespace slackline::worker {

// Thread-safety: none.
// Ownership:     borrows the test images.
class Evaluator {
 public:
  struct Options {
    Prefetcher::Normalisation normalisation;
    uint32_t batch_size = 500;
    std::vector<std::string> class_names;  // one a class
    // With several, batches of images that are decoded are made ready by so many threads beside the caller, as many at
    // a time; none may take longer than `batch_max`.
    uint32_t data_threads = 1;
    absl::Duration batch_max = absl::Minutes(2);
    // Of a model that learns without labels: images whose labels vote, and how many of them, drawn; 0: all.
    // They outlive this. Null: the model has a classifier.
    const Dataset* neighbours = nullptr;
    uint32_t neighbours_max = 0;
  };

  Evaluator(const Dataset& test, Options options) : test_(test), options_(std::move(options)) {}

  // Where images of batches are; it outlives this. Null, as without this: anywhere.
  void UseMemory(BatchMemory* memory);

  // Forward over all test images, on the model's parameters as they are. `between` is called after each batch; an
  // error from it ends the evaluation.
  absl::StatusOr<EvaluationResult> Evaluate(Model& model, const EvaluationWork& work,
                                            const std::function<absl::Status()>& between);

  // Writes model.safetensors, report.json and, of classes, confusion.csv into work.run_folder, and names them in
  // `result`.
  //   kResourceExhausted, kUnavailable  as DurableFile has them
  absl::Status WriteFiles(Model& model, EvaluationResult& result) const;
  // The last two of them only.
  absl::Status WriteReport(const EvaluationResult& result) const;

 private:
  // Of images with objects: mean average precisions, and no loss.
  absl::StatusOr<EvaluationResult> EvaluateScenes(Model& model, const EvaluationWork& work,
                                                  const std::function<absl::Status()>& between);
  // Images `indices` of `images`, in batches.
  absl::Status ForEachBatch(const Dataset& images, const std::vector<uint32_t>& indices,
                            const std::function<absl::Status(const Batch&)>& use);
  // The same images into batch_; `ahead`: null, or who makes them ready.
  absl::Status Load(const Dataset& images, absl::Span<const uint32_t> indices, Prefetcher* ahead);

  const Dataset& test_;
  const Options options_;
  BatchMemory* memory_ = nullptr;
  std::unique_ptr<Batch> batch_ = NewBatch(memory_);
};

}  // namespace slackline::worker
