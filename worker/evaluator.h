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
  };

  Evaluator(const Dataset& test, Options options) : test_(test), options_(std::move(options)) {}

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
  // Null where the caller loads the images by itself.
  std::unique_ptr<Prefetcher> ReadAhead() const;
  // The images from `begin` on into batch_; `ahead`: null, or who makes them ready.
  absl::Status Load(uint64_t begin, Prefetcher* ahead);

  const Dataset& test_;
  const Options options_;
  std::unique_ptr<Batch> batch_ = std::make_unique<Batch>();
};

}  // namespace slackline::worker
