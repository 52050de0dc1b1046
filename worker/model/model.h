// Model: a neural network on one device, with all its numbers in flat buffers. Only the implementation uses LibTorch.
//
// The flat vector has three parts: the trained parameters, in the order of tensors(); the buffers that are averaged
// (batch-norm statistics); and the frozen parameters, which have no gradient. Parameters are views into parameters().
// Gradients are moved to push() as backward computes them.
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
#include "common/base/parameter_groups.h"
#include "common/job/model_kinds.h"
#include "common/process/device.h"
#include "images/base/batch.h"
#include "images/base/scene.h"
#include "worker/model/step_recorder.h"

namespace slackline::worker {

// Initial distribution of the weights of convolutions and fully connected layers.
struct Initialisation {
  enum class Kind { kReference, kKaimingNormal, kKaimingUniform, kXavierUniform, kTruncatedNormal };
  Kind kind = Kind::kReference;
  double deviation = 0.02;  // kTruncatedNormal
};

// Loss that training minimises. Evaluations measure it without class weights and label smoothing.
enum class LossKind {
  kCrossEntropy,
  // Mean over the outputs of the squared difference from the label's one-hot vector.
  kMeanSquare,
  // Mean over the outputs of the binary cross-entropy (sigmoid) with the label's one-hot vector.
  kBinaryCrossEntropy,
  // Loss that the module returns in training mode: a number, or a dictionary of numbers, which are added. Only for
  // kTorchScript. Evaluations measure the cross-entropy of the module's outputs.
  kModel,
};

// Settings of training without labels: training.self_supervised in the job file.
struct SelfSupervised {
  enum class Method { kNone, kContrastive, kSelfDistillation };
  Method method = Method::kNone;
  uint32_t views = 2;        // number of views of each image in a step
  double temperature = 0.1;  // kContrastive
  uint32_t hidden = 0;       // hidden width of the projection and of the predictor
  uint32_t outputs = 0;
  double teacher_momentum = 0.996;  // kSelfDistillation
  // Number of remembered images that vote in Evaluate(), each with weight exp(cosine / temperature).
  uint32_t neighbours = 20;
  double neighbour_temperature = 0.07;

  bool on() const { return method != Method::kNone; }
  bool has_teacher() const { return method == Method::kSelfDistillation; }
};

// Precision of products in forward and backward. Weights and pushes are always float32.
enum class Precision { kFloat32, kBf16, kFp16 };

struct ModelSpec {
  ModelKind kind = ModelKind::kMlp;
  std::vector<uint32_t> hidden;   // for mlp, cnn and texture_cnn_2; resolved: never empty
  std::vector<uint32_t> filters;  // for cnn: two
  bool batch_norm = false;        // for cnn; a resnet and an efficientnet always have it
  uint32_t classes = 10;
  // Shape of one image: channels x height x width.
  uint32_t channels = 1;
  uint32_t height = 28;
  uint32_t width = 28;
  uint32_t patch_size = 16;  // for vit: side of a patch
  // Probabilities in training, resolved: 0 for networks that do not use them.
  double dropout = 0;           // probability for an input of the classifier
  double stochastic_depth = 0;  // probability for the last residual branch; earlier branches have proportionally less
  bool checkpointing = false;   // for vit: blocks keep only their inputs, and backward computes them again
  Initialisation init = {};
  // Rules for frozen tensors. The first rule that matches a parameter applies to it; each rule must be the first match
  // of some parameter.
  std::vector<ParameterGroupRule> groups = {};
  LossKind loss = LossKind::kCrossEntropy;
  // Label smoothing in training. Evaluations measure the plain loss.
  double label_smoothing = 0;
  std::vector<float> class_weights = {};  // one per class; empty: 1 for all classes
  // Training without labels. If it is on, a head replaces the classifier, and the loss is that of the method.
  SelfSupervised self_supervised = {};
  // File of the module, and libraries with its operators; for kTorchScript.
  std::string torchscript = {};
  std::vector<std::string> libraries = {};
  // Precision in training. Evaluations use float32.
  Precision precision = Precision::kFloat32;
  bool channels_last = true;  // memory order of images, and of the outputs of convolutions
  bool cudnn_benchmark = false;
  // Records steps on GPUs, as RecordSteps() does.
  bool cuda_graphs = false;
};

struct TensorInfo {
  std::string name;  // name as in state_dict
  std::vector<uint64_t> shape;
  bool trained = true;
  bool frozen = false;  // true if neither trained nor averaged: keeps its initial value
  uint64_t offset = 0;  // first element in the flat vector

  uint64_t elements() const;
};

// Arrival represents parameters that are still arriving while a step computes on them, first layers first.
//
// Thread-safety: none; the thread that steps.
class Arrival {
 public:
  virtual ~Arrival() = default;

  // Blocks until parameters()[0, end) have arrived and do not change any more.
  //   others  the parameters will not arrive
  virtual absl::Status AwaitUpTo(uint64_t end) = 0;
  // Blocks until all parameters have arrived and the previous push does not need push() any more. Must precede writes
  // to push().
  virtual absl::Status AwaitAll() = 0;
};

// A view of a part of a batch.
struct BatchView {
  absl::Span<const float> images;
  absl::Span<const int64_t> labels;
  uint64_t noise = 0;
  // Factor of the loss at the start of backward. Gradients are divided by it before they are pushed.
  float loss_scale = 1;
  // Labels of mixed images and scenes, as in Batch.
  float share = 1;
  absl::Span<const int64_t> other_labels = {};
  absl::Span<const images::Scene> scenes = {};
  // Number of views of each image. A part of a batch has a gap behind each view: `view_stride` is the number of floats
  // from the beginning of a view to that of the next one, or 0 if there are no gaps.
  uint32_t views = 1;
  size_t view_stride = 0;
  // Null if all parameters are present.
  Arrival* arrival = nullptr;
};

// Smallest number of classes for which the top five are counted. With fewer classes, five are more than half of them.
inline constexpr uint32_t kTop5Classes = 10;

inline BatchView ViewOf(const images::Batch& batch) {
  return {.images = batch.images,
          .labels = batch.labels,
          .noise = batch.noise,
          .share = batch.share,
          .other_labels = batch.other_labels,
          .scenes = batch.scenes,
          .views = batch.views};
}

struct StepResult {
  uint64_t samples = 0;
  double loss = 0;       // mean over the samples; in training with class weights and label smoothing
  uint64_t correct = 0;  // samples whose largest output is the label
  // L2 norm of the gradient, if the device has measured it.
  std::optional<double> gradient_norm = {};
  // Samples whose label is among the five largest outputs. Evaluate() counts them for models with at least kTop5Classes
  // classes.
  uint64_t correct_top5 = 0;
};

// Model computes gradients and evaluates on one device.
//
// Thread-safety: none.
class Model {
 public:
  virtual ~Model() = default;

  // Builds the network. The initial weights are those that its reference (PyTorch, torchvision, timm) gives it under
  // `seed`, or follow spec.init: equal specs and seeds give equal weights. Random draws in steps depend on `seed` and
  // BatchView::noise.
  //
  // On a GPU, parameters(), push() and lent memory are the GPU's memory, which the host cannot read. The weights equal
  // those of a CPU.
  //
  //   kInvalidArgument  the spec cannot be built (image too small, wrong number of filters), or not in its precision on
  //                     this device
  //   kInternal         LibTorch's message: there is no such device, or no memory
  static absl::StatusOr<std::unique_ptr<Model>> Create(const ModelSpec& spec, uint64_t seed, const Device& device = {});

  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual uint64_t elements() const = 0;
  virtual uint64_t trained_elements() const = 0;
  // Number of elements before the frozen ones.
  uint64_t pushed_elements() const;

  // Weights and buffers, elements() long. The caller writes to them only between steps.
  virtual absl::Span<float> parameters() = 0;
  // Values to push after a step, elements() long: gradients, then the buffers' new values. Frozen elements have places
  // here, but no values.
  virtual absl::Span<float> push() = 0;
  // Makes `memory` the push() of later steps, so that the result of an earlier step can still be in transit. Borrows
  // the memory. Requires: elements() floats, aligned to a cache line.
  virtual void UsePush(absl::Span<float> memory) = 0;
  // Makes `memory`, with its present contents, the parameters() of later steps, so that newer weights can arrive
  // elsewhere in the meantime. Borrows the memory. Requires: elements() floats, aligned to a cache line.
  virtual void UseParameters(absl::Span<float> memory) = 0;

  // Announces that push()[from, elements()) does not change any more in this step. `from` falls while backward
  // continues. On a GPU this holds once stream() has executed the work that it has at the time of the call. The call
  // then comes from a thread of LibTorch, while the caller waits.
  using Ready = std::function<void(uint64_t from)>;

  // Runs forward and backward, and replaces push() with the gradient of the mean loss. Calls `ready`, in this thread,
  // whenever more of the gradient is complete.
  //   kInvalidArgument  a label is not below classes; sizes do not match
  //   kInternal         LibTorch's message
  //   others            the error of batch.arrival
  virtual absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) = 0;
  absl::StatusOr<StepResult> Step(const BatchView& batch) {
    return Step(batch, [](uint64_t) {});
  }
  // Makes later steps on batches of the largest size so far be recorded, after a few plain ones, and then replayed. A
  // replayed step waits for all parameters before it begins, and announces push() once, as a whole.
  //   kInvalidArgument  a step depends on more than its batch's images and labels (CheckRecordable)
  //   kUnimplemented    this model's steps cannot be recorded
  virtual absl::Status RecordSteps(std::unique_ptr<StepRecorder> recorder);
  // Runs forward in evaluation mode, and writes the predicted class of each image to `predictions`. A model trained
  // without labels predicts by the nearest remembered images; its loss is then the mean share of votes for other
  // classes.
  //   kFailedPrecondition  no images are remembered
  virtual absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) = 0;

  // Returns true if steps count the samples whose largest output is the label; false for a loss without classes.
  virtual bool counts_correct() const { return true; }

  // Evaluates images with objects. Returns what is found on each image, in order.
  //   kInvalidArgument  a scene is inconsistent
  //   kUnimplemented    the network classifies
  virtual absl::StatusOr<std::vector<images::DetectedObjects>> Detect(absl::Span<const images::Scene> scenes);

  // Drop and collect remembered images, for models that learn without labels. An evaluation begins with Forget().
  // Remember() adds images whose labels vote in Evaluate(), by the model's present parameters.
  virtual void Forget() {}
  virtual absl::Status Remember(const BatchView& batch);
  // Weights of the teacher, elements() long; empty if the model has none. They change only in SetTeacher() and
  // MoveTeacher(). MoveTeacher() precedes the next steps: t = m t + (1 - m) w. Its first call copies the weights. On a
  // GPU they are the GPU's memory.
  //   kInternal  LibTorch's message
  virtual absl::Span<const float> teacher() const { return {}; }
  virtual absl::Status MoveTeacher() { return absl::OkStatus(); }
  // Sets the teacher's weights from host memory, elements() long.
  virtual absl::Status SetTeacher(absl::Span<const float> /*parameters*/) { return absl::OkStatus(); }

  // Stream on which steps of a GPU enqueue their work: a cudaStream_t.
  virtual void* stream() const { return nullptr; }
};

// Sets the number of threads that LibTorch uses inside one operation, for the calling thread and for every thread whose
// first operation comes later. Call it before models and groups are created. More threads than free cores are much
// slower than one thread: they spin while they wait for each other.
void SetComputeThreads(uint32_t threads);
// Returns LibTorch's version, for example "2.13.0".
std::string LibTorchVersion();
// Returns the file of LibTorch's GPU half, or a word for one that is already loaded. Empty if LibTorch is a build for
// CPUs.
std::string LibTorchForGpus();
// Loads LibTorch's GPU half. Call it before models on GPUs are created.
//   kFailedPrecondition  the half is missing, does not load, or finds no GPU; says why
absl::Status LoadLibTorchForGpus();

}  // namespace slackline::worker
