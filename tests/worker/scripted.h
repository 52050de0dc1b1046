// A fake scheduler, client and model, which a test of the trainer controls.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "worker/trainer/trainer.h"

namespace slackline::worker {

// A fake link to the scheduler. It gives the answers of a list, and remembers what it was told.
class ScriptedLink : public SchedulerLink {
 public:
  void set_on_end(OnEnd on_end) override { on_end_ = std::move(on_end); }
  void set_on_map(OnMap on_map) override { on_map_ = std::move(on_map); }
  absl::StatusOr<WorkerMembership> Join() override {
    ++joins;
    WorkerMembership life;
    life.worker = WorkerId(1);
    life.incarnation = Incarnation(static_cast<uint64_t>(joins));
    life.first_clock = Clock64(5);
    life.send_seed = joins == 1;
    return life;
  }
  absl::StatusOr<ShardMap> GetShardMap() override {
    ShardMap map;
    map.elements = map.trained_elements = elements;
    return map;
  }
  absl::StatusOr<Work> NextWork(RangeId range_done, double, const std::vector<PartPosition>& reached) override {
    if (!reached.empty()) parts_reached = reached;
    if (range_done != RangeId(0)) done.push_back(range_done.value());
    if (work.empty()) return LeaveWork{"the job is done"};
    absl::StatusOr<Work> next = std::move(work.front());
    work.pop_front();
    return next;
  }
  absl::StatusOr<std::vector<PartLease>> LeaseParts(const StreamFacts&, uint32_t wanted,
                                                    const std::vector<PartPosition>& reached) override {
    parts_wanted.push_back(wanted);
    parts_reached = reached;
    return part_leases;
  }
  absl::Status ReportEvaluation(const EvaluationResult& result) override {
    evaluations.push_back(result.metrics.accuracy.value_or(0));
    return absl::OkStatus();
  }
  void Leave(const std::string& reason, const RangePart& trained) override {
    left = reason;
    left_with = trained;
  }
  absl::Status Pause(absl::Duration duration) override {
    if (on_pause) on_pause(duration);
    return absl::OkStatus();
  }
  void Interrupt(const std::string& reason) override { interrupted = reason; }
  ProgressBoard& progress() override { return progress_; }

  uint64_t elements = 2;
  int joins = 0;
  std::deque<absl::StatusOr<Work>> work;
  std::vector<uint64_t> done;
  // Parts of a stream: what the worker gets, and what it asked and said last.
  std::vector<PartLease> part_leases;
  std::vector<uint32_t> parts_wanted;
  std::vector<PartPosition> parts_reached;
  std::vector<double> evaluations;
  std::string left, interrupted;
  RangePart left_with;
  std::function<void(absl::Duration)> on_pause;
  OnEnd on_end_;
  OnMap on_map_;

 private:
  ProgressBoard progress_;
};

// Everything that all clients of a test have seen, and what they are to do.
struct Wire {
  std::vector<std::string> calls;
  std::vector<PushInfo> pushes;
  std::vector<std::vector<float>> pushed;
  std::vector<uint64_t> ready;
  std::vector<const float*> written;     // memory for the weights after each step
  std::deque<absl::Status> step_errors;  // status of each step; empty means OK
  std::function<void()> during_step;
  std::function<void(absl::Span<float> parameters)> on_pull;
  size_t in_flight_max = 0;
  // True if weights come while the next step computes; then `order` has what was awaited, opened and finished.
  bool by_layers = false;
  std::vector<std::string> order;
  absl::Status layer_error;
};

class ScriptedClient : public Client {
 public:
  ScriptedClient(const ClientOptions& options, Wire& wire) : wire_(wire), clock_(options.first_clock) {
    wire_.calls.push_back(options.reader ? "open reader" : "open");
  }

  absl::Status Seed(absl::Span<const float>, absl::Duration) override { return Note("seed"); }
  absl::Status Pull(absl::Span<float> parameters, absl::Duration) override {
    if (wire_.on_pull) wire_.on_pull(parameters);
    return Note("pull");
  }
  bool BeginFinish(absl::Duration) override {
    if (wire_.by_layers) wire_.order.push_back("begin to finish");
    return wire_.by_layers;
  }
  absl::StatusOr<uint64_t> AwaitPulled(uint64_t end) override {
    wire_.order.push_back("await " + std::to_string(end));
    if (!wire_.layer_error.ok()) return std::exchange(wire_.layer_error, absl::OkStatus());
    return end;
  }
  absl::Status OpenStep(absl::Span<const float> push) override {
    wire_.order.push_back("open");
    push_ = push;
    return absl::OkStatus();
  }
  void Ready(uint64_t from) override { wire_.ready.push_back(from); }
  absl::Status CommitStep(const PushInfo& info, absl::Span<float> parameters) override {
    wire_.pushes.push_back(info);
    wire_.pushed.emplace_back(push_.begin(), push_.end());
    wire_.written.push_back(parameters.data());
    ++in_flight_;
    wire_.in_flight_max = std::max(wire_.in_flight_max, in_flight_);
    return absl::OkStatus();
  }
  absl::Status BeginStep(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters) override {
    const absl::Status opened = OpenStep(push);
    return opened.ok() ? CommitStep(info, parameters) : opened;
  }
  size_t steps_in_flight() const override { return in_flight_; }
  absl::StatusOr<StepReport> Step(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters,
                                  absl::Duration timeout) override {
    const absl::Status begun = BeginStep(push, info, parameters);
    return begun.ok() ? FinishStep(timeout) : begun;
  }
  absl::StatusOr<StepReport> FinishStep(absl::Duration) override {
    wire_.order.push_back("finish");
    --in_flight_;
    if (wire_.during_step) wire_.during_step();
    if (cancelled_.HasBeenNotified()) return absl::CancelledError("cancelled");
    if (!wire_.step_errors.empty()) {
      const absl::Status status = wire_.step_errors.front();
      wire_.step_errors.pop_front();
      if (!status.ok()) return status;
    }
    clock_ = clock_.Next();
    StepReport report;
    report.clock = clock_;
    report.staleness.Add(clock_.value());
    return report;
  }
  void Close(const std::string& reason, absl::Duration) override { wire_.calls.push_back("close: " + reason); }
  void Remap(const ShardMap& map) override {
    wire_.calls.push_back("remap: " + std::to_string(map.generation.value()));
  }
  void Cancel(const std::string&) override { cancelled_.Notify(); }
  Clock64 clock() const override { return clock_; }

 private:
  absl::Status Note(const std::string& call) {
    wire_.calls.push_back(call);
    return absl::OkStatus();
  }

  Wire& wire_;
  Clock64 clock_;
  absl::Span<const float> push_;
  size_t in_flight_ = 0;
  absl::Notification cancelled_;
};

// A group with a model of two weights. The gradient is (3, 4), or what a test puts there.
class FixedGroup : public LocalGroup, public Model {
 public:
  size_t devices() const override { return 1; }
  Model& model() override { return *this; }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override {
    used.push_back(parameters_.data());
    loss_scales.push_back(batch.loss_scale);
    if (during_step) during_step();
    if (batch.arrival != nullptr) {
      for (const uint64_t end : {1, 1, 2}) {
        if (absl::Status status = batch.arrival->AwaitUpTo(end); !status.ok()) return status;
      }
      if (absl::Status status = batch.arrival->AwaitAll(); !status.ok()) return status;
    }
    if (!failure.ok()) return failure;
    ready(1);
    ready(0);
    StepResult result;
    result.samples = batch.labels.size();
    result.loss = loss;
    for (const int64_t label : batch.labels) labels.push_back(label);
    return result;
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  uint64_t elements() const override { return 2; }
  uint64_t trained_elements() const override { return 2; }
  absl::Span<float> parameters() override { return parameters_; }
  absl::Span<float> push() override { return push_.empty() ? absl::MakeSpan(gradient) : push_; }
  void UsePush(absl::Span<float> memory) override {
    push_ = memory;
    std::copy(gradient.begin(), gradient.end(), push_.begin());
  }
  void UseParameters(absl::Span<float> memory) override { parameters_ = memory; }
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override {
    std::copy(batch.labels.begin(), batch.labels.end(), predictions.begin());
    known = remembered;
    StepResult result;
    result.samples = batch.labels.size();
    return result;
  }

  bool reads_as_they_arrive() const override { return by_layers; }

  void Forget() override { remembered.clear(); }
  absl::Status Remember(const BatchView& batch) override {
    remembered.insert(remembered.end(), batch.labels.begin(), batch.labels.end());
    return absl::OkStatus();
  }
  absl::Span<const float> teacher() const override { return taught; }
  absl::Status MoveTeacher() override {
    moved_after.push_back(labels.size());
    return absl::OkStatus();
  }
  absl::Status SetTeacher(absl::Span<const float> parameters) override {
    taught.assign(parameters.begin(), parameters.end());
    return absl::OkStatus();
  }

  bool by_layers = false;
  std::vector<int64_t> remembered;  // labels of images
  std::vector<int64_t> known;       // labels remembered at the last evaluation
  std::vector<float> taught;        // parameters of the teacher; empty: no teacher
  std::vector<size_t> moved_after;  // number of images seen, at each move of the teacher
  std::function<void()> during_step;
  absl::Status failure;  // status of all steps
  double loss = 0.5;
  std::vector<float> gradient = {3, 4};
  std::vector<int64_t> labels;
  std::vector<const float*> used;  // the parameters of each step
  std::vector<float> loss_scales;  // loss scale of each step

 private:
  std::vector<TensorInfo> tensors_ = {{.name = "weight", .shape = {2}}};
  std::vector<float> own_parameters_ = {5, 6};
  absl::Span<float> parameters_ = absl::MakeSpan(own_parameters_);
  absl::Span<float> push_;
};

}  // namespace slackline::worker
