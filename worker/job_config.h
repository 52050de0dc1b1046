// The job file's fields as this worker's rooms want them: plain structs, so that no room needs protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/power/find_meters.h"
#include "common/timeouts.h"
#include "job.pb.h"
#include "worker/core_plan.h"
#include "worker/data/prefetcher.h"
#include "worker/data/prepared_store.h"
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
  enum class DataFormat { kIdx, kPrepared, kFolder, kWebdataset, kCoco } data_format = DataFormat::kIdx;
  // folder and webdataset.
  struct Decode {
    std::string size;  // empty: that of the first picture
    bool grey = false;
    bool crop = false;
  } decode = {};
  // coco: where each split has its files; empty: nowhere.
  struct CocoFiles {
    std::string images;
    std::string annotations;
  };
  struct Coco {
    CocoFiles train;
    CocoFiles validation;
    CocoFiles test;
    bool masks = true;
  } coco = {};
  StoreOptions store;  // of prepared images
  bool peers = false;  // nodes get them together
  std::string evaluation_split = "test";
  bool verify_data = false;
  Augment augment;
  uint32_t data_threads = 1;
  Prefetcher::Normalisation normalisation;
  uint32_t prefetch_batches = 4;
  uint32_t evaluation_batch_size = 500;
  uint32_t neighbours_max = 0;  // as Evaluator::Options has it
  PushCodecs push_codecs;
  Trainer::Options trainer;  // but for the runs of push_codecs, which the model's tensors say
  std::vector<std::string> devices;
  // Of each device. Where worker.threads is 0 and worker.cores binds the worker, its cores say it instead.
  uint32_t compute_threads = 1;
  bool threads_by_cores = false;
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

// Which of the job's workers a process is.
struct WorkerIdentity {
  std::string name;
  // Of worker.groups; 0 where there are none.
  uint32_t group = 0;
};

// What the workers of the job on one machine want of its cores, in the order of their seats.
//   workers  how many there are; with worker.groups each has the next group, and after the last the first again
//   first    the group of the first of them
//   gpus     of the machine; a worker with one whose node is not known is near none
struct MachineShape {
  uint32_t workers = 1;
  uint32_t first = 0;
  uint32_t gpus = 0;
  // By GPU: its NUMA node, as a place in a list of nodes. May be empty.
  std::vector<std::optional<size_t>> gpu_nodes = {};
};
std::vector<CoreShare> CoreShares(const job::Job& job, const MachineShape& machine);

// `cores`: of this machine.
WorkerConfig MakeWorkerConfig(const job::Job& job, const WorkerIdentity& self, uint32_t cores);

// The data must fit the model.
//   kInvalidArgument  another image size of test images than of training images, labels beyond the classes, no images
absl::Status CheckData(const Dataset& train, const Dataset& test, uint32_t classes);

// The model for these images: their size, and class weights where they are to follow from how many each class has.
//   kInvalidArgument  a class without images has no balanced weight
absl::StatusOr<ModelSpec> FitModel(const WorkerConfig& config, const Dataset& train);

}  // namespace slackline::worker
