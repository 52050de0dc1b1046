#include "worker/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log/logging.h"
#include "worker/base/gradient_norm.h"
#include "worker/local_training/local_images.h"

namespace slackline::worker {
namespace {

// Time between two attempts to write to a disk that is full.
constexpr absl::Duration kRoomEvery = absl::Seconds(1);

}  // namespace

// Layers are asked in the order of forward, so that most of them ask for what has long come.
class Trainer::LayerWait final : public Arrival {
 public:
  explicit LayerWait(Trainer& trainer) : trainer_(trainer) {}

  absl::Status AwaitUpTo(uint64_t end) override {
    if (end <= there_) return absl::OkStatus();
    const TraceSpan span(trainer_.trace_, {"wait for a layer"});
    const absl::Time begin = trainer_.parts_.time.Now();
    const absl::StatusOr<uint64_t> to = trainer_.life_.Await([&] { return trainer_.life_.client()->AwaitPulled(end); });
    const absl::Duration took = trainer_.parts_.time.Now() - begin;
    trainer_.layer_wait_ += took;
    trainer_.overlap_wait_ += took;
    if (to.ok()) there_ = *to;
    return to.status();
  }
  absl::Status AwaitAll() override { return trainer_.OpenNext(); }

 private:
  Trainer& trainer_;
  uint64_t there_ = 0;
};

bool Trainer::MayOverlapPulls(const Options& options, const LocalGroup& group) {
  const bool plain = options.window == 1 && options.accumulate == 1 && !options.local.on() && !options.loss_scale.on &&
                     options.slowdown <= 1;
  return options.pull_by_layers && plain && group.reads_as_they_arrive();
}

absl::Status Trainer::OpenNext() {
  const absl::Time begin = parts_.time.Now();
  const absl::Status finished = FinishSteps(0);
  overlap_wait_ += parts_.time.Now() - begin;
  return finished.ok() ? life_.client()->OpenStep(parts_.group.model().push()) : finished;
}

Trainer::Trainer(const Options& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      trace_(AddRow(parts.trace, "trainer")),
      exchange_trace_(AddRow(parts.trace, "exchange")),
      overlap_pulls_(MayOverlapPulls(options, parts.group)),
      life_({.timeouts = options.timeouts, .server_return = options.server_return}, parts.link),
      scaler_(options.loss_scale),
      round_(options.local) {
  SLACKLINE_CHECK(!options_.local.on() || (options_.window == 1 && options_.accumulate == 1 && !scaler_.on()));
  SLACKLINE_CHECK(ParameterMemories(options_) == 0 || parts_.parameter_memory.size() == options_.window);
  if (!parts_.parameter_memory.empty()) {
    Model& model = parts_.group.model();
    absl::c_copy(model.parameters(), parts_.parameter_memory.front().begin());
    model.UseParameters(parts_.parameter_memory.front());
  }
  parts_.prefetcher.UseMemory(parts_.group.batch_memory());
  parts_.evaluator.UseMemory(parts_.group.batch_memory());
}

absl::Status Trainer::Run() {
  bool leaves = false;
  while (!leaves) {
    leaves = course_.leaves();
    EnterPhase(course_.act());
    CloseClient(course_.goodbye());
    std::visit([this](const auto& act) { Perform(act); }, Act(course_.act()));
  }
  if (const std::optional<Life::End> end = life_.end()) course_.End(end->status, end->reason);
  const LeaveAct leave = std::get<LeaveAct>(course_.act());
  parts_.link.Leave(LeaveReason(leave), {});
  return leave.status;
}

void Trainer::Done(const absl::Status& status) {
  const absl::Status cause = status.ok() ? status : life_.Cause(status);
  if (!cause.ok() && life_.end()) return course_.End(cause, std::string(cause.message()));
  course_.Done(cause);
}

void Trainer::Perform(const JoinAct&) {
  if (course_.goodbye()) log::Info("this worker joins again: ", *course_.goodbye());
  local_state_.reset();
  absl::Status joined = life_.Join();
  const uint64_t elements = parts_.group.model().elements();
  if (joined.ok() && life_.map().elements != elements) {
    joined = absl::InternalError(
        absl::StrCat("the shard map has ", life_.map().elements, " elements, the model ", elements));
  }
  Done(joined);
}

void Trainer::Perform(const EnterAct&) {
  Model& model = parts_.group.model();
  absl::Status status = OpenClient();
  if (status.ok() && life_.membership().send_seed && parts_.begin_with) status = parts_.begin_with(model.parameters());
  if (status.ok()) status = life_.SeedAndPull(model.parameters());
  Done(status.ok() ? BeginTeacher() : status);
}

void Trainer::Perform(const AskAct& ask) {
  const absl::StatusOr<Work> work = parts_.link.NextWork(ask.done, samples_per_second_, /*reached=*/{});
  work.ok() ? course_.Got(*work) : Done(work.status());
}

void Trainer::Perform(const RangeWork& range) { Done(TrainRange(range)); }

void Trainer::Perform(const EvaluationWork& evaluation) {
  Done(Evaluate(evaluation));
  EnterPhase(power::Phase::kOther);
}

void Trainer::Perform(const StandbyWork& standby) { Done(parts_.link.Pause(standby.retry)); }

absl::Status Trainer::BeginTeacher() {
  Model& model = parts_.group.model();
  if (!options_.averaged || model.teacher().empty()) return absl::OkStatus();
  const absl::StatusOr<absl::Span<float>> averaged = PullAveraged();
  return averaged.ok() ? model.SetTeacher(*averaged) : averaged.status();
}

void Trainer::EnterPhase(const Act& act) {
  const auto* const evaluation = std::get_if<EvaluationWork>(&act);
  if (std::holds_alternative<AskAct>(act)) return;  // belongs to what it follows
  if (std::holds_alternative<RangeWork>(act)) return EnterPhase(power::Phase::kTraining);
  if (evaluation == nullptr) return EnterPhase(power::Phase::kOther);
  EnterPhase(evaluation->final ? power::Phase::kTest : power::Phase::kValidation);
}

void Trainer::EnterPhase(power::Phase phase) {
  if (parts_.energy != nullptr) parts_.energy->Enter(phase);
}

absl::Status Trainer::TrainRange(const RangeWork& range) {
  if (order_epoch_ != range.epoch) {
    const images::Dataset& train = parts_.train;
    order_ = options_.balanced  ? images::BalancedOrder(train.labels(), options_.seed, range.epoch)
             : options_.by_file ? images::OrderByFile(train.file_starts(), train.size(), options_.seed, range.epoch)
                                : images::EpochOrder(train.size(), options_.seed, range.epoch, train.BlockSamples());
    order_epoch_ = range.epoch;
  }
  if (range.begin > range.end || range.end > order_.size()) {
    return absl::InternalError(absl::StrCat("range ", range.range.value(), " is [", range.begin, ", ", range.end,
                                            ") of ", order_.size(), " training images"));
  }
  std::vector<uint32_t> images = ImagesOf(range);
  const auto goes_on = [this] {
    parts_.link.progress().Alive(parts_.time.Now());
    return life_.CheckInterrupted();
  };
  if (absl::Status here = parts_.train.Fetch(images, goes_on); !here.ok()) return here;
  RangeProgress progress = {.done = 0, .size = images.size()};
  parts_.prefetcher.Start(std::move(images), BatchSizeOf(range), range.epoch);
  const absl::Time begin = parts_.time.Now();
  while (progress.done < progress.size) {
    const absl::StatusOr<uint64_t> trained = TrainStep(range, progress);
    if (!trained.ok()) return trained.status();
    progress.done += *trained;
  }
  if (const absl::Status finished = FinishSteps(0); !finished.ok()) return finished;
  const double seconds = absl::ToDoubleSeconds(parts_.time.Now() - begin);
  if (seconds > 0) samples_per_second_ = static_cast<double>(range.end - range.begin) / seconds;
  return absl::OkStatus();
}

std::vector<uint32_t> Trainer::ImagesOf(const RangeWork& range) const {
  const absl::Span<const uint32_t> images = absl::MakeConstSpan(order_).subspan(range.begin, range.end - range.begin);
  if (!options_.local.on()) return {images.begin(), images.end()};
  return LocalImages(options_.local,
                     {.worker = life_.membership().worker,
                      .range = range.range,
                      .batch_size = BatchSizeOf(range),
                      .seed = options_.seed,
                      .train_images = parts_.train.size(),
                      .file_starts = options_.by_file ? parts_.train.file_starts() : absl::Span<const uint64_t>()},
                     images);
}

absl::StatusOr<uint64_t> Trainer::TrainStep(const RangeWork& range, const RangeProgress& progress) {
  Model& model = parts_.group.model();
  if (!parts_.push_memory.empty()) {
    model.UsePush(parts_.push_memory[(steps_ + begun_.size()) % parts_.push_memory.size()]);
  }
  const TraceSpan span(trace_, {"step", static_cast<int64_t>(steps_ + begun_.size())});
  const Beginning begin = BeginComputing();
  // The step before may be in flight still: then it is opened after forward.
  absl::Status opened = scaler_.on() || arriving_ ? absl::OkStatus() : life_.client()->OpenStep(model.push());
  if (!opened.ok()) return opened;
  const absl::StatusOr<StepResult> result = Compute(progress.size - progress.done);
  if (!result.ok()) return result.status();
  const double norm =
      result->gradient_norm ? *result->gradient_norm : L2Norm(model.push().first(model.trained_elements()));
  const absl::Status finite = CheckFinite(*result, norm, range);
  if (!finite.ok()) {
    if (Skips(finite)) return result->samples;
    return finite;
  }
  if (scaler_.on()) opened = life_.client()->OpenStep(model.push());
  if (!opened.ok()) return opened;
  scaler_.Good();
  parts_.metrics.RecordLossScale(scaler_.scale());
  const absl::Status dawdled = Dawdle(begin);
  if (!dawdled.ok()) return dawdled;

  const uint64_t passes = std::max(1u, options_.local.epochs);
  const PushInfo info = {.samples = result->samples,
                         .loss = result->loss,
                         .gradient_norm = norm,
                         .range = range.range,
                         .range_samples_done = (progress.done + result->samples) / passes};
  const absl::Status committed = life_.client()->CommitStep(info, NextParameters());
  if (!committed.ok()) return committed;
  StepFacts& facts = begun_.emplace_back();
  facts.samples = result->samples;
  facts.loss = result->loss;
  facts.gradient_norm = norm;
  facts.local_steps = round_.steps();
  facts.correct = result->correct;
  facts.unjudged = parts_.group.model().counts_correct() ? 0 : result->samples;
  facts.compute = parts_.time.Now() - begin.time - std::exchange(overlap_wait_, absl::ZeroDuration());
  facts.data_wait = std::exchange(data_wait_, absl::ZeroDuration());
  const bool last = progress.done + result->samples >= progress.size;
  arriving_ = overlap_pulls_ && !last && life_.client()->BeginFinish(life_.silence_max());
  if (arriving_) return result->samples;
  const absl::Status finished = FinishSteps(options_.window - 1);
  if (!finished.ok()) return finished;
  return result->samples;
}

absl::StatusOr<StepResult> Trainer::Compute(uint64_t samples_left) {
  if (options_.local.on()) return ComputeRound(samples_left);
  if (absl::Status moved = parts_.group.model().MoveTeacher(); !moved.ok()) return moved;
  // A slow worker has nothing to send before it is through.
  if (options_.accumulate == 1) return ComputeBatch(/*early=*/options_.slowdown <= 1 && !scaler_.on());
  Model& model = parts_.group.model();
  push_mean_.Reset();
  StepResult sum;
  double loss_sum = 0;
  for (uint32_t i = 0; i < options_.accumulate && sum.samples < samples_left; ++i) {
    if (const absl::Status status = life_.CheckInterrupted(); !status.ok()) return status;
    const absl::StatusOr<StepResult> result = ComputeBatch(/*early=*/false);
    if (!result.ok()) return result;
    push_mean_.Add(model.push(), result->samples);
    sum.samples += result->samples;
    sum.correct += result->correct;
    loss_sum += result->loss * static_cast<double>(result->samples);
    parts_.link.progress().Alive(parts_.time.Now());
  }
  push_mean_.Write(model.push());
  sum.loss = loss_sum / static_cast<double>(sum.samples);
  return sum;
}

absl::StatusOr<StepResult> Trainer::ComputeRound(uint64_t samples_left) {
  Model& model = parts_.group.model();
  round_.Begin(model, std::move(local_state_));
  const uint32_t steps = options_.local.steps > 0 ? options_.local.steps : std::numeric_limits<uint32_t>::max();
  for (uint32_t i = 0; i < steps && samples_left > 0; ++i) {
    if (const absl::Status status = life_.CheckInterrupted(); !status.ok()) return status;
    // The worker's own steps move the weights, so the teacher follows each of them.
    if (absl::Status moved = model.MoveTeacher(); !moved.ok()) return moved;
    const absl::StatusOr<StepResult> result = ComputeBatch(/*early=*/false);
    if (!result.ok()) return result;
    round_.Step(model, *result);
    samples_left -= result->samples;
    parts_.link.progress().Alive(parts_.time.Now());
  }
  const StepResult sum = round_.Finish(model);
  local_state_ = round_.TakeState();
  return sum;
}

absl::StatusOr<StepResult> Trainer::ComputeBatch(bool early) {
  const absl::Time begin = parts_.time.Now();
  TraceSpan waiting(trace_, {"wait for data"});
  absl::StatusOr<std::unique_ptr<images::Batch>> batch = parts_.prefetcher.Next(options_.timeouts.stall);
  waiting.End();
  if (!batch.ok()) return batch.status();
  data_wait_ += parts_.time.Now() - begin;
  SLACKLINE_CHECK(*batch != nullptr);  // the range has more samples
  BatchView view = ViewOf(**batch);
  view.loss_scale = scaler_.scale();
  LayerWait layers(*this);
  if (arriving_) view.arrival = &layers;
  absl::StatusOr<StepResult> result = parts_.group.Step(view, [this, early](uint64_t from) {
    if (early) life_.client()->Ready(from);
  });
  if (abandoned_ == nullptr && !parts_.group.given_up().ok()) {
    abandoned_ = *std::move(batch);
  } else {
    parts_.prefetcher.Recycle(*std::move(batch));
  }
  SLACKLINE_CHECK(!result.ok() || !arriving_);  // the group has awaited all
  return result;
}

bool Trainer::WaitOnClock(absl::Mutex& mutex, const absl::Condition& until, absl::Duration timeout) {
  return mutex.AwaitWithTimeout(until, timeout);
}

absl::Status Trainer::Dawdle(const Beginning& begin) {
  if (options_.slowdown <= 1) return absl::OkStatus();
  absl::Duration left = options_.slowdown * (DeviceTime() - begin.device_time) - (parts_.time.Now() - begin.time);
  // In parts, so that it is not taken for one who has stalled.
  const absl::Duration part_max = options_.timeouts.stall / 4;
  do {
    const absl::Duration part = std::clamp(left, absl::ZeroDuration(), part_max);
    if (life_.AwaitInterruption(parts_.wait, part)) return life_.CheckInterrupted();
    left -= part;
    parts_.link.progress().Alive(parts_.time.Now());
  } while (left > absl::ZeroDuration());
  return absl::OkStatus();
}

absl::Span<float> Trainer::NextParameters() {
  const std::vector<absl::Span<float>>& memory = parts_.parameter_memory;
  if (memory.empty()) return parts_.group.model().parameters();
  return memory[(parameters_used_ + begun_.size() + 1) % memory.size()];
}

absl::Status Trainer::FinishSteps(size_t left) {
  while (begun_.size() > left) {
    const TraceSpan span(trace_, {"wait for servers"});
    const absl::Time begin = parts_.time.Now();
    const absl::StatusOr<StepReport> report =
        life_.Await([&] { return life_.client()->FinishStep(life_.silence_max()); });
    if (!report.ok()) return report.status();
    const absl::Time end = parts_.time.Now();
    arriving_ = false;
    ++steps_;
    course_.Stepped();
    StepFacts facts = begun_.front();
    begun_.pop_front();
    if (!parts_.parameter_memory.empty()) {
      parameters_used_ = (parameters_used_ + 1) % parts_.parameter_memory.size();
      parts_.group.model().UseParameters(parts_.parameter_memory[parameters_used_]);
    }
    static_cast<StepReport&>(facts) = *report;
    facts.wait = end - begin + std::exchange(layer_wait_, absl::ZeroDuration());
    parts_.link.progress().Record(facts, end);
    parts_.metrics.Record(facts);
  }
  return absl::OkStatus();
}

absl::Status Trainer::Evaluate(const EvaluationWork& work) {
  Model& model = parts_.group.model();
  absl::Span<float> trained_on;
  if (work.final) {
    const absl::Status pulled = PullAsReader(model.parameters());
    if (!pulled.ok()) return pulled;
  } else if (options_.averaged) {
    const absl::StatusOr<absl::Span<float>> before = UseAveraged();
    if (!before.ok()) return before.status();
    trained_on = *before;
  } else if (options_.predicted) {
    const absl::Status pulled = PullAsReader(model.parameters());
    if (!pulled.ok()) return pulled;
  }
  TraceSpan evaluating(trace_, {"evaluate"});
  const Beginning begin = BeginComputing();
  absl::StatusOr<EvaluationResult> result = parts_.evaluator.Evaluate(model, work, [this] {
    parts_.link.progress().Alive(parts_.time.Now());
    return life_.CheckStopped();
  });
  evaluating.End();
  if (!trained_on.empty()) model.UseParameters(trained_on);
  if (!result.ok()) return result.status();
  if (const absl::Status dawdled = Dawdle(begin); !dawdled.ok()) return dawdled;
  const absl::Duration took = parts_.time.Now() - begin.time;
  result->seconds = absl::ToDoubleSeconds(took);
  parts_.metrics.RecordEvaluation(result->metrics.accuracy, took);
  if (result->metrics.objects) {
    log::Info(work.final ? "final " : "", "evaluation after epoch ", work.epoch, ": mAP ", *result->metrics.accuracy,
              ", at an overlap of 0.5 ", result->metrics.objects->boxes.map_50);
  } else {
    log::Info(work.final ? "final " : "", "evaluation after epoch ", work.epoch, ": test accuracy ",
              *result->metrics.accuracy, ", loss ", result->loss.value_or(0));
  }
  if (work.final) {
    const absl::Status written = WriteResults(model, *result);
    if (!written.ok()) return written;
  }
  const absl::Status reported = parts_.link.ReportEvaluation(*result);
  if (!reported.ok() || work.final) return reported;
  // The others went on meanwhile: the next gradient would be as stale as this has taken.
  return life_.Await([&] { return life_.client()->Pull(model.parameters(), life_.silence_max()); });
}

absl::StatusOr<absl::Span<float>> Trainer::UseAveraged() {
  Model& model = parts_.group.model();
  const absl::Span<float> before = model.parameters();
  const absl::StatusOr<absl::Span<float>> averaged = PullAveraged();
  if (!averaged.ok()) return averaged;
  model.UseParameters(*averaged);
  return before;
}

absl::StatusOr<absl::Span<float>> Trainer::PullAveraged() {
  if (!averaged_) averaged_.emplace(1, parts_.group.model().elements(), /*shared=*/false);
  const absl::Span<float> averaged = averaged_->parts().front();
  const absl::Status pulled = PullAsReader(averaged);
  if (!pulled.ok()) return pulled;
  return averaged;
}

absl::Status Trainer::PullAsReader(absl::Span<float> parameters) {
  absl::StatusOr<std::unique_ptr<Client>> reader = MakeClient(/*reader=*/true);
  if (!reader.ok()) return reader.status();
  return life_.PullAside(*std::move(reader), parameters);
}

absl::Status Trainer::OpenClient() {
  absl::StatusOr<std::unique_ptr<Client>> client = MakeClient(/*reader=*/false);
  if (!client.ok()) return client.status();
  life_.Replace(*std::move(client));
  return absl::OkStatus();
}

void Trainer::CloseClient(const std::optional<std::string>& reason) {
  if (!reason) return;
  begun_.clear();
  arriving_ = false;
  layer_wait_ = overlap_wait_ = absl::ZeroDuration();
  life_.Close(*reason);
}

absl::Status Trainer::CheckFinite(const StepResult& result, double norm, const RangeWork& range) const {
  const bool loss_finite = std::isfinite(result.loss);
  // Averaged buffers lie behind the gradient.
  const Model& model = parts_.group.model();
  const absl::Span<const float> push = parts_.group.model().push().first(model.pushed_elements());
  const double buffers = L2Norm(push.subspan(std::min<size_t>(life_.map().trained_elements, push.size())));
  if (loss_finite && std::isfinite(norm) && std::isfinite(buffers)) return absl::OkStatus();
  const std::string what = !loss_finite           ? absl::StrCat("the loss is ", result.loss)
                           : !std::isfinite(norm) ? absl::StrCat("the gradient's norm is ", norm)
                                                  : "a batch-norm statistic is not finite";
  return absl::InternalError(absl::StrCat(
      "step ", life_.client()->clock().value() + begun_.size() + 1, " (epoch ", range.epoch + 1, ", range ",
      range.range.value(), "): ", what, "; nothing of it was applied. A smaller ",
      options_.local.on() ? "local.lr or " : "", "optimizer.lr, a warm-up or optimizer.clip_norm usually helps"));
}

bool Trainer::Skips(const absl::Status& finite) {
  const float scale = scaler_.scale();
  if (!scaler_.Bad()) return false;
  log::Info("skipped a step: ", std::string(finite.message().substr(0, finite.message().find(';'))),
            " with the loss scaled by ", scale, "; the next ones by ", scaler_.scale());
  parts_.metrics.RecordSkipped(scaler_.scale());
  parts_.link.progress().Alive(parts_.time.Now());
  return true;
}

absl::Status Trainer::WriteResults(Model& model, EvaluationResult& result) {
  absl::Status written = parts_.evaluator.WriteFiles(model, result);
  if (!absl::IsResourceExhausted(written)) return written;
  const std::string most = absl::StrCat("at most ", absl::FormatDuration(options_.room_max), " (checkpoint.timeout_s)");
  const std::string what =
      absl::StrCat("room for the results of the run, ", most, ": ", std::string(written.message()));
  log::Warning("this worker waits for ", what);
  parts_.link.progress().SetWaitsFor(what);
  // The scheduler ends the job first, for all who would try it.
  const absl::Time deadline = parts_.time.Now() + options_.room_max + options_.timeouts.worker_dead();
  while (absl::IsResourceExhausted(written) && parts_.time.Now() < deadline) {
    parts_.link.progress().Alive(parts_.time.Now());
    absl::Status paused = parts_.link.Pause(kRoomEvery);
    if (paused.ok()) paused = life_.CheckStopped();
    if (!paused.ok()) return paused;
    written = parts_.evaluator.WriteFiles(model, result);
  }
  parts_.link.progress().SetWaitsFor("");
  if (written.ok()) log::Info("the disk has space again: this worker has written the results of the run");
  if (!absl::IsResourceExhausted(written)) return written;
  return absl::ResourceExhaustedError(absl::StrCat(written.message(), "; waited ", most,
                                                   "; free some space there, and continue with `slackline resume`"));
}

absl::StatusOr<std::unique_ptr<Client>> Trainer::MakeClient(bool reader) {
  ClientOptions options = life_.MakeClientOptions(reader);
  options.averaged = reader && options_.averaged;
  options.chunk_bytes = options_.chunk_bytes;
  options.window = options_.window;
  options.first_layers_first = overlap_pulls_;
  options.background = options_.window > 1 || life_.map().elements >= kBackgroundElementsMin;
  options.same_host = options_.same_host;
  options.protection = options_.protection;
  options.cores = options_.exchange_cores;
  if (!reader) {
    options.push_runs = options_.push_runs;
    options.pull_encoding = options_.pull_encoding;
    options.push_segment = parts_.push_segment;
    options.on_device = PlanOnDevice(options);
  }
  options.trace = exchange_trace_;
  return parts_.connect(options, life_.map());
}

DevicePlan Trainer::PlanOnDevice(const ClientOptions& options) {
  ChunkEncoder* const encoder = parts_.group.encoder();
  // A push of several batches, or one that may be skipped, is made of floats.
  if (encoder == nullptr || options_.accumulate > 1 || options_.local.on() || scaler_.on()) return {};
  std::vector<PlannedChunk> chunks = PlanChunks(options, life_.map());
  const absl::Status planned = encoder->Plan(chunks);
  if (!planned.ok()) {
    log::Warning("gradients are encoded on the host: ", std::string(planned.message()));
    return {};
  }
  if (chunks.empty()) return {};
  return {.encoder = encoder, .chunks = std::move(chunks)};
}

}  // namespace slackline::worker
