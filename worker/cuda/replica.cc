#include "worker/cuda/replica.h"

#include <algorithm>
#include <utility>

#include "worker/cuda/cuda_status.h"
#include "worker/cuda/profiled_span.h"

namespace slackline::worker::gpu {
// The host waits for nothing: the device's own stream waits before a layer.
class Replica::LayerWait final : public Arrival {
 public:
  explicit LayerWait(Replica& replica) : replica_(replica) {}

  absl::Status AwaitUpTo(uint64_t end) override { return replica_.AwaitParameters(end); }
  absl::Status AwaitAll() override { return replica_.AwaitParameters(replica_.model_->elements()); }

 private:
  Replica& replica_;
};

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(const ModelSpec& spec, uint64_t seed, const Options& options) {
  std::unique_ptr<Replica> made(new Replica(options));
  const absl::Status status = made->Prepare(spec, seed);
  if (!status.ok()) return status;
  return made;
}

absl::Status Replica::Check(cudaError_t said, const char* doing) const {
  return CudaStatus(said, options_.device, doing);
}

absl::Status Replica::Prepare(const ModelSpec& spec, uint64_t seed) {
  absl::Status status = Check(cudaSetDevice(static_cast<int>(options_.device.index)), "choosing it");
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Create(spec, seed, options_.device);
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  for (cudaStream_t* stream : {&sums_, &copies_}) {
    status = Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream");
    if (!status.ok()) return status;
  }
  status = Check(cudaEventCreateWithFlags(&order_event_, cudaEventDisableTiming), "making an event");
  uploaded_.assign((model_->elements() + kPieceElements - 1) / kPieceElements, nullptr);
  for (cudaEvent_t& event : uploaded_) {
    if (status.ok()) status = Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  }
  if (status.ok() && first()) {
    auto squares = SquareSums::Create(options_.device, BucketsOf(model_->elements()));
    if (squares.ok()) squares_ = *std::move(squares);
    status = squares.status();
  }
  if (!status.ok() || options_.rank.count == 1) return status;
  auto communicator = Communicator::Create(options_.device, options_.rank, options_.id, options_.timeout);
  if (!communicator.ok()) return communicator.status();
  communicator_ = *std::move(communicator);
  return absl::OkStatus();
}

Replica::~Replica() {
  // What CUDA says to this helps nobody any more.
  (void)cudaSetDevice(static_cast<int>(options_.device.index));
  communicator_.reset();
  encoder_.reset();
  squares_.reset();
  if (order_event_ != nullptr) (void)cudaEventDestroy(order_event_);
  for (cudaEvent_t event : uploaded_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  for (cudaStream_t stream : {sums_, copies_}) {
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
}

void Replica::Settle() const {
  // A device that is broken does no more work.
  (void)cudaSetDevice(static_cast<int>(options_.device.index));
  (void)cudaDeviceSynchronize();
}

absl::Status Replica::Chain(cudaStream_t before, cudaStream_t after) {
  absl::Status status = Check(cudaEventRecord(order_event_, before), "recording an event");
  if (status.ok()) status = Check(cudaStreamWaitEvent(after, order_event_, 0), "ordering streams");
  return status;
}

absl::StatusOr<StepResult> Replica::Step(const Order& order) {
  broken_ = Check(cudaSetDevice(static_cast<int>(options_.device.index)), "choosing it");
  order_ = order;
  sent_ = 0;
  if (broken_.ok() && communicator_ != nullptr) broken_ = communicator_->SetWeight(order.weight);
  if (broken_.ok()) broken_ = BeginStep();
  // What is there is on its way before anything else is handed out.
  if (broken_.ok() && order.gate == nullptr) broken_ = SendParameters(model_->elements());
  if (broken_.ok() && order.moves_teacher) broken_ = MoveTeacher();
  absl::StatusOr<StepResult> result = StepResult{};
  if (broken_.ok() && !order.part.labels.empty()) {
    LayerWait layers(*this);
    BatchView part = order.part;
    part.arrival = &layers;
    ProfiledSpan span(options_.trace, {"forward"});
    bool backward = false;
    result = model_->Step(part, [&](uint64_t from) {
      if (!std::exchange(backward, true)) {
        span.Next({"backward"});
        // Sums come behind all parameters, with each device, and so does what is pushed.
        if (broken_.ok()) broken_ = SendParameters(model_->elements());
      }
      Ready(from);
    });
  }
  // CUDA repeats an error to whatever comes later: the first one counts.
  const bool computed_wrongly = broken_.ok() && absl::IsInternal(result.status());
  if (broken_.ok()) broken_ = AwaitParameters(model_->elements());
  if (broken_.ok() && (order.part.labels.empty() || !result.ok())) {
    // Zeros, and not what is left of the last step: 0 times infinity is no 0.
    const absl::Span<float> push = model_->push();
    broken_ = Check(cudaMemsetAsync(push.data(), 0, push.size() * sizeof(float), compute()), "clearing gradients");
  }
  Ready(0);
  if (!broken_.ok() && !computed_wrongly) return broken_;
  return result;
}

absl::Status Replica::AwaitParameters(uint64_t end) {
  const size_t pieces = (end + kPieceElements - 1) / kPieceElements;
  if (const absl::Status sent = SendParameters(end); !sent.ok()) return sent;
  // The sums' stream has come by each piece in its order, so that the last one stands for all before it.
  if (pieces <= uploads_known_) return absl::OkStatus();
  uploads_known_ = pieces;
  return Check(cudaStreamWaitEvent(compute(), uploaded_[pieces - 1], 0), "waiting for parameters");
}

absl::Status Replica::MoveTeacher() {
  const absl::Status there = AwaitParameters(model_->elements());
  return there.ok() ? model_->MoveTeacher() : there;
}

absl::Status Replica::BeginStep() {
  uploads_known_ = 0;
  uploads_sent_ = 0;
  // What the last step computed on, and the last copies of what this step's backward writes, come before.
  absl::Status status = Chain(compute(), copies_);
  if (status.ok()) status = Chain(compute(), sums_);
  if (status.ok()) status = Chain(copies_, sums_);
  return status;
}

absl::Status Replica::SendParameters(uint64_t end) {
  const uint64_t elements = model_->elements();
  absl::Status status;
  while (status.ok() && uploads_sent_ < end) {
    const uint64_t begin = std::exchange(uploads_sent_, std::min(elements, uploads_sent_ + kPieceElements));
    if (order_.gate != nullptr) order_.gate->Await(uploads_sent_);
    const ProfiledSpan span(options_.trace, {"send parameters"});
    status = SendPiece(begin);
    if (!status.ok() || uploads_sent_ < elements || !first()) continue;
    host_push_ = order_.destination->push;
    if (encoder_ == nullptr || host_push_ == nullptr) continue;
    status = encoder_->Begin(
        {.block = order_.destination->block, .host_push = host_push_, .push = model_->push().data(), .copies = copies_},
        order_.destination->returned);
  }
  return status;
}

absl::Status Replica::SendPiece(uint64_t begin) {
  const absl::Span<float> part = model_->parameters().subspan(begin, kPieceElements);
  absl::Status status;
  if (first()) {
    status = Check(cudaMemcpyAsync(part.data(), order_.parameters + begin, part.size() * sizeof(float),
                                   cudaMemcpyHostToDevice, copies_),
                   "copying parameters to it");
    if (status.ok()) status = Chain(copies_, sums_);
  }
  if (status.ok() && communicator_ != nullptr) status = communicator_->Broadcast(part.data(), part.size(), sums_);
  if (status.ok()) status = Check(cudaEventRecord(uploaded_[begin / kPieceElements], sums_), "recording an event");
  return status;
}

void Replica::Ready(uint64_t from) {
  const uint64_t elements = model_->elements();
  while (broken_.ok() && sent_ < BucketsOf(elements) && BucketBegin(elements, sent_) >= from) {
    broken_ = SendBucket(sent_++);
  }
}

absl::Status Replica::SendBucket(uint64_t bucket) {
  const ProfiledSpan span(options_.trace, {"send bucket", static_cast<int64_t>(bucket)});
  const uint64_t elements = model_->elements(), begin = BucketBegin(elements, bucket);
  const uint64_t end = bucket == 0 ? elements : BucketBegin(elements, bucket - 1);
  float* const values = model_->push().data() + begin;
  absl::Status status = Chain(compute(), sums_);
  if (status.ok() && communicator_ != nullptr) status = communicator_->Sum(values, end - begin, sums_);
  if (!status.ok() || !first()) return status;
  const uint64_t trained = std::clamp(model_->trained_elements(), begin, end);
  status = squares_->Measure(bucket, values, trained - begin, sums_);
  if (status.ok()) status = CopyBucket({begin, end});
  if (status.ok()) status = squares_->CopyOut(bucket, copies_);
  if (!status.ok()) return status;
  const auto arrived = [](void* self) { static_cast<const Replica*>(self)->options_.on_bucket(); };
  return Check(cudaLaunchHostFunc(copies_, arrived, this), "announcing gradients");
}

absl::Status Replica::CopyBucket(const Elements& elements) {
  if (encoder_ != nullptr && host_push_ != nullptr) return encoder_->Send({.elements = elements, .sums = sums_});
  const absl::Status status = Chain(sums_, copies_);
  if (!status.ok() || host_push_ == nullptr) return status;
  return Check(cudaMemcpyAsync(host_push_ + elements.begin, model_->push().data() + elements.begin,
                               (elements.end - elements.begin) * sizeof(float), cudaMemcpyDeviceToHost, copies_),
               "copying gradients from it");
}

absl::Status Replica::EncodeBy(const ChunkPlan& plan) {
  absl::Status status = Check(cudaSetDevice(static_cast<int>(options_.device.index)), "choosing it");
  // Its last copies are done: somebody has waited for all buckets.
  encoder_.reset();
  if (!status.ok() || plan.empty()) return status;
  auto made = SumEncoder::Create(options_.device, plan, model_->elements());
  if (made.ok()) {
    encoder_ = *std::move(made);
  } else {
    // CUDA would say it again to the next who asks for the last error.
    (void)cudaGetLastError();
  }
  return made.status();
}

absl::Status Replica::Upload(const float* parameters) {
  absl::Status status = Check(cudaSetDevice(static_cast<int>(options_.device.index)), "choosing it");
  if (!status.ok()) return status;
  const absl::Span<float> own = model_->parameters();
  // Images that were remembered may still be computed, with the parameters that are there.
  status = Chain(compute(), copies_);
  if (!status.ok()) return status;
  status = Check(cudaMemcpyAsync(own.data(), parameters, own.size() * sizeof(float), cudaMemcpyHostToDevice, copies_),
                 "copying parameters to it");
  return status.ok() ? Chain(copies_, compute()) : status;
}

absl::Status Replica::Download(float* parameters) {
  absl::Status status = Check(cudaSetDevice(static_cast<int>(options_.device.index)), "choosing it");
  if (!status.ok()) return status;
  const absl::Span<float> own = model_->parameters();
  return Check(cudaMemcpy(parameters, own.data(), own.size() * sizeof(float), cudaMemcpyDeviceToHost),
               "copying parameters from it");
}

}  // namespace slackline::worker::gpu
