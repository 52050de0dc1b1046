// A neural network on one device, with all its numbers in flat buffers. LibTorch stays behind this header.
//
// The flat vector has the trained parameters first, in the order of tensors(), then the buffers that are averaged
// (batch-norm statistics), then the parameters that are frozen, of which there is no gradient. Parameters are views
// into parameters(); gradients are moved to push() as backward makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "common/parameter_groups.h"
#include "worker/model/batch_memory.h"
#include "worker/model/scene.h"
#include "worker/model/step_recorder.h"

namespace slackline::worker {

enum class ModelKind {
  kMlp,
  kCnn,
  kResnet18,
  kResnet34,
  kResnet50,
  kEfficientnetB0,
  kVitTiny,
  kVitSmall,
  kVitBase,
  kTextureCnn2,
  // A module of somebody else's: ModelSpec::torchscript.
  kTorchScript
};

// As the job file writes it.
std::string KindName(ModelKind kind);

// How the weights of convolutions and fully connected layers begin.
struct Initialisation {
  enum class Kind { kReference, kKaimingNormal, kKaimingUniform, kXavierUniform, kTruncatedNormal };
  Kind kind = Kind::kReference;
  double deviation = 0.02;  // kTruncatedNormal
};

// What training makes small; evaluations measure the same, without class weights and label smoothing.
enum class LossKind {
  kCrossEntropy,
  // Mean over the outputs of the squared difference from the label's one-hot vector.
  kMeanSquare,
  // Mean over the outputs of the binary cross-entropy (sigmoid) with the label's one-hot vector.
  kBinaryCrossEntropy,
  // kTorchScript only: what the module returns in training mode, a number or a dictionary of numbers, which are added.
  // Evaluations measure the cross-entropy of its outputs.
  kModel,
};

// Training without labels: what the job file's training.self_supervised says.
struct SelfSupervised {
  enum class Method { kNone, kContrastive, kSelfDistillation };
  Method method = Method::kNone;
  uint32_t views = 2;        // of each image of a step
  double temperature = 0.1;  // kContrastive
  uint32_t hidden = 0;       // of the projection, and of the predictor
  uint32_t outputs = 0;
  double teacher_momentum = 0.996;  // kSelfDistillation
  // Evaluate() goes by so many of the images that are remembered, each with exp(cosine / temperature).
  uint32_t neighbours = 20;
  double neighbour_temperature = 0.07;

  bool on() const { return method != Method::kNone; }
  bool has_teacher() const { return method == Method::kSelfDistillation; }
};

// Of products in forward and backward; weights, and what is pushed, are float32 always.
enum class Precision { kFloat32, kBf16, kFp16 };

struct ModelSpec {
  ModelKind kind = ModelKind::kMlp;
  std::vector<uint32_t> hidden;   // mlp, cnn and texture_cnn_2; resolved: never empty
  std::vector<uint32_t> filters;  // cnn: two
  bool batch_norm = false;        // cnn; a resnet and an efficientnet always have it
  uint32_t classes = 10;
  // One image: channels x height x width.
  uint32_t channels = 1;
  uint32_t height = 28;
  uint32_t width = 28;
  uint32_t patch_size = 16;  // vit: side
  // Probabilities in training, resolved: 0 for networks that have none.
  double dropout = 0;           // of an input of the classifier
  double stochastic_depth = 0;  // of the last residual branch; the earlier ones less, in proportion
  bool checkpointing = false;   // vit: blocks keep their inputs only, and are computed again in backward
  Initialisation init = {};
  // Which tensors are frozen, by the first rule that matches; each must be the first to match some parameter.
  std::vector<ParameterGroupRule> groups = {};
  LossKind loss = LossKind::kCrossEntropy;
  // Of training only; evaluations measure the plain loss.
  double label_smoothing = 0;
  std::vector<float> class_weights = {};  // one a class; empty: 1 for all
  // Where it is on there is no classifier, and a head in its place; the loss is the method's.
  SelfSupervised self_supervised = {};
  // kTorchScript: the file, and libraries with operators of the module.
  std::string torchscript = {};
  std::vector<std::string> libraries = {};
  // How it is computed, in training; evaluations are in float32.
  Precision precision = Precision::kFloat32;
  bool channels_last = true;  // of images, and of what convolutions make of them
  bool cudnn_benchmark = false;
  // On GPUs, as RecordSteps() has it.
  bool cuda_graphs = false;
};

struct TensorInfo {
  std::string name;  // as in state_dict
  std::vector<uint64_t> shape;
  bool trained = true;
  bool frozen = false;  // not trained, and no buffer either: stays as it began
  uint64_t offset = 0;  // first element in the flat vector

  uint64_t elements() const;
};

// Images as the data room prepares them: normalised float32, n x channels x height x width; of several views the first
// of all images, then the second.
struct Batch {
  BatchFloats images;
  std::vector<int64_t> labels;
  // Follows from which images these are, and their order: with the model's seed it says what dropout leaves out.
  uint64_t noise = 0;
  // Of mixed images: what the label counts, and another one for the rest; empty: the label is the whole.
  float share = 1;
  std::vector<int64_t> other_labels = {};
  // Of images with objects: these, one for each label, and no `images`; the labels mean nothing.
  std::vector<Scene> scenes = {};
  uint64_t size() const { return labels.size(); }
};

// An empty one whose images are in `memory`; null: anywhere.
inline std::unique_ptr<Batch> NewBatch(BatchMemory* memory) {
  auto batch = std::make_unique<Batch>();
  batch->images = BatchFloats(BatchAllocator<float>(memory));
  return batch;
}

// Parameters that are still on their way while a step computes on them, first layers first.
//
// Thread-safety: none; the thread that steps.
class Arrival {
 public:
  virtual ~Arrival() = default;

  // Returns when parameters()[0, end) are there, and stay as they are.
  //   others  they will not come
  virtual absl::Status AwaitUpTo(uint64_t end) = 0;
  // All of them, and what was pushed last needs push() no more. Comes before push() is written.
  virtual absl::Status AwaitAll() = 0;
};

// A view of a part of a batch.
struct BatchView {
  absl::Span<const float> images;
  absl::Span<const int64_t> labels;
  uint64_t noise = 0;
  // Backward begins with the loss times this, and gradients are divided by it before they are pushed.
  float loss_scale = 1;
  // As Batch has them.
  float share = 1;
  absl::Span<const int64_t> other_labels = {};
  absl::Span<const Scene> scenes = {};
  // Null: all parameters are there.
  Arrival* arrival = nullptr;
};

// With fewer, five are half of them.
inline constexpr uint32_t kTop5Classes = 10;

inline BatchView ViewOf(const Batch& batch) {
  return {.images = batch.images,
          .labels = batch.labels,
          .noise = batch.noise,
          .share = batch.share,
          .other_labels = batch.other_labels,
          .scenes = batch.scenes};
}

struct StepResult {
  uint64_t samples = 0;
  double loss = 0;       // mean over the samples; in training with class weights and label smoothing
  uint64_t correct = 0;  // largest output is the label
  // The gradient's L2 norm, where not all of it is in push() (ChunkEncoder).
  std::optional<double> gradient_norm = {};
  // The label is among the five largest outputs; counted by Evaluate(), of models with kTop5Classes and more.
  uint64_t correct_top5 = 0;
};

// Thread-safety: none.
class Model {
 public:
  virtual ~Model() = default;

  // Builds the network with the initialisation that its reference (PyTorch, torchvision, timm) gives it under `seed`,
  // or as spec.init says: equal specs and seeds give equal weights. What steps draw at random follows from `seed` and
  // BatchView::noise.
  //   kInvalidArgument  the spec cannot be built (image too small, wrong number of filters), or not in its precision
  //   here
  // On a GPU parameters() and push() are its memory, which the host cannot read, and so is what is lent; weights are
  // those of a CPU.
  //   kInternal         LibTorch's message: there is no such device, or no memory
  static absl::StatusOr<std::unique_ptr<Model>> Create(const ModelSpec& spec, uint64_t seed, const Device& device = {});

  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual uint64_t elements() const = 0;
  virtual uint64_t trained_elements() const = 0;
  // Those before what is frozen.
  uint64_t pushed_elements() const;

  // Weights and buffers, elements() long. Whoever writes them does so between steps.
  virtual absl::Span<float> parameters() = 0;
  // What is pushed after a step, elements() long: gradients, then the buffers' new values; what is frozen has room
  // there, and no values.
  virtual absl::Span<float> push() = 0;
  // Makes `memory` the push() of the steps that follow, so that what an earlier step made can still be on its way.
  // Borrows it. Requires: elements() floats, on a cache line.
  virtual void UsePush(absl::Span<float> memory) = 0;
  // Makes `memory` and what it holds the parameters() of the steps that follow, so that newer weights can arrive
  // elsewhere meanwhile. Borrows it. Requires: elements() floats, on a cache line.
  virtual void UseParameters(absl::Span<float> memory) = 0;

  // push()[from, elements()) will not change any more in this step. `from` falls while backward goes on. On a GPU: once
  // stream() has come to where it is at the call, which comes from a thread of LibTorch while the caller waits.
  using Ready = std::function<void(uint64_t from)>;

  // Forward and backward; fills push() with the gradient of the mean loss (replacing the last one). Calls `ready`, in
  // this thread, whenever more of it is complete.
  //   kInvalidArgument  a label is not below classes; sizes do not fit
  //   kInternal         LibTorch's message
  //   others            of batch.arrival
  virtual absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) = 0;
  absl::StatusOr<StepResult> Step(const BatchView& batch) {
    return Step(batch, [](uint64_t) {});
  }
  // From now on steps on batches of the largest size so far are recorded, after a few of them, and replayed. Such a
  // step waits for all parameters before it begins, and says that push() is ready once.
  //   kInvalidArgument  a step depends on more than its batch's images and labels (CheckRecordable)
  //   kUnimplemented    this model's steps cannot be recorded
  virtual absl::Status RecordSteps(std::unique_ptr<StepRecorder> recorder);
  // Forward only, in evaluation mode; writes the predicted class of each image to `predictions`. Without labels in
  // training, by the nearest of the images that are remembered: the loss is then the mean share of votes for other
  // classes.
  //   kFailedPrecondition  none are
  virtual absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) = 0;

  // The same of images with objects: what is found on each, in its order.
  //   kInvalidArgument  a scene contradicts itself
  //   kUnimplemented    the network classifies
  virtual absl::StatusOr<std::vector<Found>> Detect(absl::Span<const Scene> scenes);

  // Of models that learn without labels. An evaluation begins with Forget(), and Remember() for images whose labels
  // vote in Evaluate(), with the parameters that this has.
  virtual void Forget() {}
  virtual absl::Status Remember(const BatchView& batch);
  // Of those with a teacher, elements() long; others have none. It stays as it is until MoveTeacher(), which comes
  // before the steps that follow, t = m t + (1 - m) w. The first time it becomes the weights.
  virtual absl::Span<const float> teacher() const { return {}; }
  virtual void MoveTeacher() {}
  // Makes it `parameters`, elements() long.
  virtual void SetTeacher(absl::Span<const float> /*parameters*/) {}

  // Of a GPU, what steps put their work on: a cudaStream_t.
  virtual void* stream() const { return nullptr; }
};

// Threads LibTorch uses inside one operation: for the calling thread, and for every thread whose first operation comes
// later. Call it before models and groups are created. More than the free cores is much slower than one: the threads
// spin while they wait for each other.
void SetComputeThreads(uint32_t threads);
// "2.13.0".
std::string LibTorchVersion();
// The half of LibTorch that computes on GPUs, as a file, or a word for one that is loaded; empty where LibTorch is a
// build for CPUs.
std::string LibTorchForGpus();
// Loads it. Call it before models of GPUs are created.
//   kFailedPrecondition  it is not there, does not load, or finds no GPU; says why
absl::Status LoadLibTorchForGpus();

}  // namespace slackline::worker
