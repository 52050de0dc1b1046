// The job file's fields as this worker's rooms want them: plain structs, so that no room needs protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/power/find_meters.h"
#include "common/timeouts.h"
#include "job.pb.h"
#include "worker/data/prefetcher.h"
#include "worker/model/model.h"
#include "worker/push_codecs.h"
#include "worker/trainer.h"

namespace slackline::worker {

struct WorkerConfig {
  ModelSpec model;  // but for what the data say: see FitModel()
  bool class_weights_balanced = false;
  uint64_t seed = 1;
  std::string data_path;
  uint64_t train_images_max = 0;
  // Prepared images; else IDX.
  bool prepared = false;
  std::string evaluation_split = "test";
  bool verify_data = false;
  Augment augment;
  Prefetcher::Normalisation normalisation;
  uint32_t prefetch_batches = 4;
  uint32_t evaluation_batch_size = 500;
  PushCodecs push_codecs;
  Trainer::Options trainer;  // but for the runs of push_codecs, which the model's tensors say
  std::vector<std::string> devices;
  uint32_t compute_threads = 1;
  // As GroupOptions has them.
  size_t stages = 1;
  size_t micro_batches = 0;
  // Empty: no trace.
  std::string trace;
  // How long to wait for a scheduler that died.
  absl::Duration scheduler_return = absl::ZeroDuration();
  // What is metered of this node, and how often.
  struct Metering {
    bool on = false;
    enum class Gpus { kUsed, kAll, kNone } gpus = Gpus::kUsed;
    power::MeterOptions options;  // but for the GPUs
    absl::Duration every = absl::Milliseconds(500);
  };
  Metering metering;
  // A safetensors file to begin with; empty: what the model draws.
  std::string weights;
};

// `name`: of this worker. `cores`: of this machine.
WorkerConfig MakeWorkerConfig(const job::Job& job, const std::string& name, uint32_t cores);

// The data must fit the model.
//   kInvalidArgument  another image size of test images than of training images, labels beyond the classes, no images
absl::Status CheckData(const Dataset& train, const Dataset& test, uint32_t classes);

// The model for these images: their size, and class weights where they are to follow from how many each class has.
//   kInvalidArgument  a class without images has no balanced weight
absl::StatusOr<ModelSpec> FitModel(const WorkerConfig& config, const Dataset& train);

}  // namespace slackline::worker
