#include "worker/embedded/embedded_worker.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/log/logging.h"
#include "common/text/counted.h"
#include "images/dataset/dataset.h"
#include "worker/base/gradient_norm.h"

namespace slackline::worker {
namespace {

uint64_t TrainedElements(const std::vector<TensorInfo>& tensors) {
  uint64_t elements = 0;
  for (const TensorInfo& tensor : tensors) elements += tensor.trained ? tensor.elements() : 0;
  return elements;
}

// Calls `late` where it lives longer than `after`.
class EmbeddedWatchdog {
 public:
  EmbeddedWatchdog(absl::Duration after, std::function<void()> late)
      : thread_([this, after, late = std::move(late)] {
          if (!over_.WaitForNotificationWithTimeout(after)) late();
        }) {}
  ~EmbeddedWatchdog() {
    over_.Notify();
    thread_.join();
  }

 private:
  absl::Notification over_;
  std::thread thread_;
};

}  // namespace

EmbeddedWorker::EmbeddedWorker(Options options, const Parts& parts)
    : options_(std::move(options)),
      parts_(parts),
      life_({.timeouts = options_.timeouts, .server_return = options_.server_return}, parts.link) {
  SLACKLINE_CHECK(options_.window > 0 && parts_.push.size() == options_.window &&
                  parts_.parameters.size() == options_.window);
  for (size_t i = 0; i < parts_.push.size(); ++i) {
    SLACKLINE_CHECK(parts_.push[i].size() == push().size() && parts_.parameters[i].size() == push().size());
  }
}

absl::StatusOr<EmbeddedTask> EmbeddedWorker::Next(bool range_done) {
  if (left_) return absl::FailedPreconditionError("this worker has left the job");
  if (Ended()) return EmbeddedEnd{*view().ended};
  if (!failure_.ok()) return failure_;
  if (step_open_) return absl::FailedPreconditionError("a step is under way: it has gradients, and was not taken yet");
  if (range_ && range_done && range_done_ < range_->end - range_->begin) {
    return absl::FailedPreconditionError(absl::StrCat("range ", range_->range.value(), " is not done: ", range_done_,
                                                      " of its ", range_->end - range_->begin,
                                                      " samples were in a step"));
  }
  if (!begun_.empty()) {
    absl::Status finished = life_.Cause(FinishSteps(0));
    if (!finished.ok()) finished = JoinAgain(finished);
    if (Ended()) return EmbeddedEnd{*view().ended};
    if (!finished.ok()) return failure_ = finished;
  }
  const bool had_task =
      std::holds_alternative<RangeWork>(course_.act()) || std::holds_alternative<EvaluationWork>(course_.act());
  if (range_ && range_done) {
    const double seconds = absl::ToDoubleSeconds(parts_.time.Now() - range_begin_);
    if (seconds > 0) samples_per_second_ = static_cast<double>(range_done_) / seconds;
    course_.Done(absl::OkStatus());
  } else if (had_task) {
    course_.GiveUp();
  }
  absl::StatusOr<EmbeddedTask> task = Work();
  if (!task.ok() && Ended()) return EmbeddedEnd{*view().ended};
  return task;
}

absl::StatusOr<EmbeddedTask> EmbeddedWorker::Work() {
  while (true) {
    JoinAndEnter();
    const Act act = course_.act();
    if (const auto* leave = std::get_if<LeaveAct>(&act)) {
      if (!leave->status.ok()) {
        CloseClient(leave->reason);
        return failure_ = leave->status;
      }
      life_.Stop(absl::OkStatus(), leave->reason);
      return EmbeddedEnd{leave->reason};
    }
    if (const auto* range = std::get_if<RangeWork>(&act)) return TakeRange(*range);
    if (course_.goodbye()) CloseClient(*course_.goodbye());
    if (const auto* ask = std::get_if<AskAct>(&act)) {
      const absl::StatusOr<worker::Work> work = parts_.link.NextWork(ask->done, samples_per_second_, ReachedParts());
      if (const absl::Status cause = life_.Cause(work.status()); !cause.ok()) {
        EndAct(cause);
        continue;
      }
      range_.reset();
      course_.Got(*work);
    } else if (const auto* evaluation = std::get_if<EvaluationWork>(&act)) {
      const absl::Status pulled = life_.Cause(PullNewest(evaluation->final));
      if (pulled.ok()) return *evaluation;
      EndAct(pulled);
    } else {
      EndAct(life_.Cause(parts_.link.Pause(std::get<StandbyWork>(act).retry)));
    }
  }
}

absl::StatusOr<EmbeddedTask> EmbeddedWorker::TakeRange(const RangeWork& range) {
  if (range.begin >= range.end || range.end > options_.train_samples) {
    return absl::InternalError(absl::StrCat("range ", range.range.value(), " is [", range.begin, ", ", range.end,
                                            ") of ", options_.train_samples, " training samples"));
  }
  if (!options_.stream && order_epoch_ != range.epoch) {
    order_ = images::EpochOrder(options_.train_samples, options_.seed, range.epoch);
    order_epoch_ = range.epoch;
  }
  range_ = range;
  if (range_->batch_size == 0) range_->batch_size = options_.batch_size;
  range_done_ = range_answered_ = 0;
  range_begin_ = parts_.time.Now();
  Alive();
  if (options_.stream) return EmbeddedRange{*range_, {}};
  const auto first = order_.begin() + static_cast<ptrdiff_t>(range.begin);
  return EmbeddedRange{*range_, {first, first + static_cast<ptrdiff_t>(range.end - range.begin)}};
}

absl::StatusOr<std::vector<PartLease>> EmbeddedWorker::LeaseParts(uint32_t wanted,
                                                                  const std::vector<PartPosition>& ended) {
  SLACKLINE_CHECK(options_.stream.has_value());
  if (Ended() || left_) return std::vector<PartLease>();
  if (!failure_.ok()) return failure_;
  const uint64_t lives = view().lives;
  absl::Status status = life_.Cause(FinishSteps(0));
  absl::StatusOr<std::vector<PartLease>> leases = std::vector<PartLease>();
  if (status.ok()) {
    std::vector<PartPosition> reached = ReachedParts();
    reached.insert(reached.end(), ended.begin(), ended.end());
    leases = parts_.link.LeaseParts(*options_.stream, wanted, reached);
    status = life_.Cause(leases.status());
    if (absl::IsInvalidArgument(status)) return status;
  }
  if (!status.ok()) {
    const absl::Status again = JoinAgain(status);
    if (Ended()) return std::vector<PartLease>();
    if (!again.ok()) return failure_ = again;
  }
  if (!status.ok() || view().lives != lives) return std::vector<PartLease>();
  std::map<uint64_t, uint64_t> held;
  for (const PartLease& lease : *leases) held[lease.lease] = lease.records;
  part_positions_ = std::move(held);
  Alive();
  return leases;
}

std::vector<PartPosition> EmbeddedWorker::ReachedParts() const {
  std::vector<PartPosition> reached;
  for (const auto& [lease, records] : part_positions_) reached.push_back({.lease = lease, .records = records});
  return reached;
}

absl::Status EmbeddedWorker::JoinAgain(const absl::Status& why) {
  EndAct(why);
  JoinAndEnter();
  const auto* const leave = std::get_if<LeaveAct>(&course_.act());
  return leave != nullptr ? leave->status : absl::OkStatus();
}

void EmbeddedWorker::EndAct(const absl::Status& cause) {
  course_.Done(cause);
  if (!absl::IsFailedPrecondition(cause)) return;
  CloseClient(std::string(cause.message()));
  range_.reset();
}

void EmbeddedWorker::JoinAndEnter() {
  while (true) {
    if (std::holds_alternative<JoinAct>(course_.act())) {
      if (course_.goodbye()) log::Info("this worker joins again: ", *course_.goodbye());
      EndAct(life_.Cause(Join()));
    } else if (std::holds_alternative<EnterAct>(course_.act())) {
      EndAct(life_.Cause(Enter()));
    } else {
      return;
    }
  }
}

absl::Status EmbeddedWorker::Join() {
  if (absl::Status joined = life_.Join(); !joined.ok()) return joined;
  const uint64_t trained = TrainedElements(options_.tensors);
  if (life_.map().elements != parameters().size() || life_.map().trained_elements != trained) {
    return absl::InternalError(absl::StrCat("the shard map has ", life_.map().elements, " elements, ",
                                            life_.map().trained_elements, " of them trained; the model has ",
                                            parameters().size(), " and ", trained));
  }
  part_positions_.clear();
  absl::MutexLock lock(&mutex_);
  view_.worker = life_.membership().worker.value();
  view_.clock = life_.membership().first_clock;
  ++view_.lives;
  return absl::OkStatus();
}

absl::Status EmbeddedWorker::Enter() {
  absl::StatusOr<std::unique_ptr<Client>> client = MakeClient(/*reader=*/false);
  if (!client.ok()) return client.status();
  life_.Replace(*std::move(client));
  const absl::Status status = life_.SeedAndPull(parameters());
  Alive();
  return status;
}

absl::Status EmbeddedWorker::PullNewest(bool final) {
  if (!final && !options_.predicted) {
    return life_.Await([&] { return life_.client()->Pull(parameters(), life_.silence_max()); });
  }
  absl::StatusOr<std::unique_ptr<Client>> reader = MakeClient(/*reader=*/true);
  if (!reader.ok()) return reader.status();
  return life_.PullAside(*std::move(reader), parameters());
}

absl::Status EmbeddedWorker::OpenStep() {
  if (left_) return absl::FailedPreconditionError("this worker has left the job");
  if (life_.client() == nullptr) {
    return absl::FailedPreconditionError("there is no step to take: this worker has no samples of the job");
  }
  const absl::Status opened = life_.client()->OpenStep(push());
  step_open_ = opened.ok();
  return opened;
}

bool EmbeddedWorker::leaves_early() const { return parameters().size() >= kBackgroundElementsMin; }

absl::Status EmbeddedWorker::Ready(uint64_t from) {
  if (!step_open_) {
    if (const absl::Status opened = OpenStep(); !opened.ok()) return opened;
  }
  left_early_ = true;
  life_.client()->Ready(from);
  return absl::OkStatus();
}

absl::StatusOr<EmbeddedStep> EmbeddedWorker::Step(const EmbeddedStepInfo& info) {
  if (Ended()) return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kEnded, .report = {}};
  if (!failure_.ok()) return failure_;
  if (!step_open_) {
    if (const absl::Status opened = OpenStep(); !opened.ok()) return opened;
  }
  const double norm = info.gradient_norm ? *info.gradient_norm : L2Norm(push().first(life_.map().trained_elements));
  if (const absl::Status finite = CheckFinite(info, norm); !finite.ok()) {
    // Servers have parts of it, which the next step of this client would be about.
    return left_early_ ? failure_ = finite : finite;
  }
  range_done_ += range_ ? info.samples : 0;
  step_open_ = false;
  left_early_ = false;
  // That of the newest weights, if it comes to that: there is a wait at once then.
  const size_t part = (parameters_used_ + begun_.size() + 1) % parts_.parameters.size();
  const absl::Status committed = life_.client()->CommitStep({.samples = info.samples,
                                                             .loss = info.loss.value_or(0),
                                                             .gradient_norm = norm,
                                                             .range = range_ ? range_->range : RangeId(),
                                                             .range_samples_done = range_done_,
                                                             .learning_rates = info.learning_rates,
                                                             .parts = info.parts},
                                                            parts_.parameters[part]);
  if (!committed.ok()) return committed;
  begun_.push_back({info, norm, range_done_});
  const absl::Status status = life_.Cause(FinishSteps(options_.window - 1));
  if (status.ok()) return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kTaken, .report = last_report_};
  const absl::Status again = JoinAgain(status);
  if (Ended()) return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kEnded, .report = {}};
  if (!again.ok()) return failure_ = again;
  return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kRejoined, .report = {}};
}

absl::Status EmbeddedWorker::FinishSteps(size_t left) {
  while (begun_.size() > left) {
    const absl::Time begin = parts_.time.Now();
    absl::StatusOr<StepReport> report = life_.Await([&] { return life_.client()->FinishStep(life_.silence_max()); });
    if (!report.ok()) return report.status();
    const BegunStep step = begun_.front();
    begun_.pop_front();
    range_answered_ = step.range_done;
    for (const PartPosition& part : step.info.parts) {
      if (const auto held = part_positions_.find(part.lease); held != part_positions_.end())
        held->second = part.records;
    }
    ++steps_finished_;
    parameters_used_ = (parameters_used_ + 1) % parts_.parameters.size();
    course_.Stepped();
    Record(step, *report, parts_.time.Now() - begin);
    last_report_ = *std::move(report);
  }
  return absl::OkStatus();
}

void EmbeddedWorker::Skip(uint64_t samples) {
  range_done_ += range_ ? samples : 0;
  Alive();
}

void EmbeddedWorker::FinishStepsSoon() {
  if (begun_.empty() || !failure_.ok()) return;
  const EmbeddedWatchdog watchdog(
      kGoodbyeTimeout, [this] { life_.EndWaits("this worker leaves, and has waited for its last steps long enough"); });
  const absl::Status finished = FinishSteps(0);
  if (!finished.ok()) {
    log::Warning("this worker leaves with ", Counted(begun_.size(), "step"),
                 " in flight, which may be lost: ", std::string(finished.message()));
  }
}

void EmbeddedWorker::Record(const BegunStep& step, const StepReport& report, absl::Duration wait) {
  const EmbeddedStepInfo& info = step.info;
  StepFacts facts;
  static_cast<StepReport&>(facts) = report;
  facts.samples = info.samples;
  facts.loss = info.loss.value_or(0);
  facts.without_loss = info.loss ? 0 : info.samples;
  facts.correct = info.correct.value_or(0);
  facts.unjudged = info.correct ? 0 : info.samples;
  facts.compute = info.compute;
  facts.data_wait = info.data_wait;
  facts.wait = wait;
  facts.gradient_norm = step.norm;
  facts.local_steps = info.local_steps;
  if (!info.learning_rates.empty()) facts.learning_rate = info.learning_rates.front();
  parts_.link.progress().Record(facts, parts_.time.Now());
  parts_.metrics.Record(facts);
  absl::MutexLock lock(&mutex_);
  ++view_.steps;
  view_.clock = report.clock;
  view_.staleness = report.staleness_max;
  view_.slack = report.slack;
}

absl::Status EmbeddedWorker::CheckFinite(const EmbeddedStepInfo& info, double norm) const {
  const double buffers = L2Norm(push().subspan(life_.map().trained_elements));
  const double loss = info.loss.value_or(0);
  if (std::isfinite(loss) && std::isfinite(norm) && std::isfinite(buffers)) return absl::OkStatus();
  const std::string what = !std::isfinite(loss)   ? absl::StrCat("the loss is ", loss)
                           : !std::isfinite(norm) ? absl::StrCat("the gradient's norm is ", norm)
                                                  : "a buffer of the model (batch norm) is not finite";
  return absl::InternalError(
      absl::StrCat("step ", life_.client()->clock().value() + begun_.size() + 1, ": ", what,
                   "; nothing of it was applied. A smaller optimizer.lr, a warm-up or optimizer.clip_norm usually "
                   "helps"));
}

absl::Status EmbeddedWorker::ReportEvaluation(const EvaluationResult& result) {
  if (result.metrics.samples > 0) {
    parts_.metrics.RecordEvaluation(result.metrics.accuracy, absl::Seconds(result.seconds));
  }
  const absl::Status reported = life_.Cause(parts_.link.ReportEvaluation(result));
  if (!reported.ok() || result.work.final || life_.client() == nullptr) return reported;
  // The others went on meanwhile: the next gradient would be as stale as this has taken.
  return life_.Cause(life_.Await([&] { return life_.client()->Pull(parameters(), life_.silence_max()); }));
}

void EmbeddedWorker::Leave(const std::string& reason, bool in_order) {
  if (std::exchange(left_, true)) return;
  FinishStepsSoon();
  CloseClient(reason);
  RangePart trained;
  if (range_ && in_order) trained = {range_->range, std::min(range_->begin + range_answered_, range_->end)};
  trained.reached = ReachedParts();
  parts_.link.Leave(reason, trained);
  absl::MutexLock lock(&mutex_);
  if (!view_.ended) view_.ended = reason;
}

void EmbeddedWorker::Interrupt(const std::string& reason) { life_.Stop(absl::CancelledError(reason), reason); }

EmbeddedView EmbeddedWorker::view() const {
  const std::optional<Life::End> end = life_.end();
  absl::MutexLock lock(&mutex_);
  EmbeddedView view = view_;
  if (end) view.ended = end->reason;
  return view;
}

bool EmbeddedWorker::Ended() const {
  const std::optional<Life::End> end = life_.end();
  return end && end->status.ok();
}

absl::StatusOr<std::unique_ptr<Client>> EmbeddedWorker::MakeClient(bool reader) {
  ClientOptions options = life_.MakeClientOptions(reader);
  options.chunk_bytes = options_.chunk_bytes;
  options.window = options_.window;
  options.background = options_.window > 1 || leaves_early();
  options.same_host = options_.same_host;
  options.protection = options_.protection;
  if (!reader) {
    options.push_runs = options_.push_runs;
    options.pull_encoding = options_.pull_encoding;
    options.push_segment = parts_.push_segment;
  }
  return parts_.connect(options, life_.map());
}

void EmbeddedWorker::CloseClient(const std::string& reason) {
  step_open_ = false;
  left_early_ = false;
  begun_.clear();
  failure_ = absl::OkStatus();
  life_.Close(reason);
}

}  // namespace slackline::worker
