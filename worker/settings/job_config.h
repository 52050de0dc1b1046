// Fields of the job file in the form that the worker's rooms need: plain structs, so that no room needs protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/power/find_meters.h"
#include "common/time/timeouts.h"
#include "images/dataset/prefetcher.h"
#include "images/formats/data_format.h"
#include "job.pb.h"
#include "worker/machine/core_plan.h"
#include "worker/model/model.h"
#include "worker/settings/push_codecs.h"
#include "worker/trainer/trainer.h"

namespace slackline::worker {

struct WorkerConfig {
  ModelSpec model;  // all but what depends on the data: see FitModel()
  bool class_weights_balanced = false;
  uint64_t seed = 1;
  images::DataRequest data;
  images::Augment augment;
  uint32_t data_threads = 1;
  images::Prefetcher::Normalisation normalisation;
  uint32_t prefetch_batches = 4;
  uint32_t evaluation_batch_size = 500;
  uint32_t neighbours_max = 0;  // see Evaluator::Options
  PushCodecs push_codecs;
  Trainer::Options trainer;  // all but push_runs, which follow from push_codecs and the model's tensors
  std::vector<std::string> devices;
  // Number of threads of each device. If worker.threads is 0 and worker.cores binds the worker, the number of its cores
  // decides instead.
  uint32_t compute_threads = 1;
  bool threads_by_cores = false;
  // See GroupOptions.
  size_t stages = 1;
  size_t micro_batches = 0;
  // Path of the trace file; empty: no trace.
  std::string trace;
  // Address of the collector that gets the trace; empty: none.
  std::string trace_otlp;
  // Longest wait for the return of a scheduler that crashed.
  absl::Duration scheduler_return = absl::ZeroDuration();
  // Meters of this node to read, and how often.
  struct Metering {
    bool on = false;
    enum class Gpus { kUsed, kAll, kNone } gpus = Gpus::kUsed;
    power::MeterOptions options;  // all but the GPUs
    absl::Duration every = absl::Milliseconds(500);
    // Time for which the idle node is metered before anything is loaded; zero: none.
    absl::Duration idle = absl::ZeroDuration();
  };
  Metering metering;
  // Path of a safetensors file with the initial weights; empty: the model draws them.
  std::string weights;
};

// Identity of a process among the workers of the job.
struct WorkerIdentity {
  std::string name;
  // Index into worker.groups; 0 if the job has none.
  uint32_t group = 0;
};

// Workers of the job on one machine, and its GPUs.
struct MachineShape {
  // Number of workers. With worker.groups each worker has the next group, and after the last group the first again.
  uint32_t workers = 1;
  // Group of the first worker.
  uint32_t first = 0;
  // Number of GPUs of the machine.
  uint32_t gpus = 0;
  // NUMA node of each GPU, as an index into a list of nodes. May be empty. A worker that has a GPU without a known node
  // is near no node.
  std::vector<std::optional<size_t>> gpu_nodes = {};
};
// Returns the cores that the workers of the machine want, in the order of their seats.
std::vector<CoreShare> CoreShares(const job::Job& job, const MachineShape& machine);

// Returns the configuration of worker `self`. `cores`: number of cores of this machine.
WorkerConfig MakeWorkerConfig(const job::Job& job, const WorkerIdentity& self, uint32_t cores);

// Returns the model for these images: with their size, and with class weights if these are to follow from the number of
// images of each class.
//   kInvalidArgument  a class without images has no balanced weight
absl::StatusOr<ModelSpec> FitModel(const WorkerConfig& config, const images::Dataset& train);

}  // namespace slackline::worker
