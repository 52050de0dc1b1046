#include "worker/scheduler_link/scheduler_wire.h"

#include <array>
#include <iterator>
#include <variant>

#include "common/base/check.h"
#include "common/base/protocol_version.h"
#include "common/metrics/measured.h"
#include "common/power/machine.h"
#include "common/process/host_name.h"
#include "google/protobuf/descriptor.h"

namespace slackline::worker {
namespace {

// As scheduler.proto has it.
constexpr size_t kConfusionClassesMax = 64;
constexpr size_t kClassBytesMax = 1 << 20;

using FigureFields = std::array<const google::protobuf::FieldDescriptor*, std::size(kFigures)>;

// Returns the field of WorkerProgress of each of kFigures.
const FigureFields& FieldsOfFigures() {
  static const FigureFields fields = [] {
    FigureFields found;
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = wire::WorkerProgress::descriptor()->FindFieldByName(std::string(kFigures[i].name));
      SLACKLINE_CHECK(found[i] != nullptr);
    }
    return found;
  }();
  return fields;
}

}  // namespace

wire::RegisterWorkerRequest MakeRegistration(const SchedulerLink::Options& options, uint32_t pid,
                                             const WorkerMembership& before) {
  wire::RegisterWorkerRequest request;
  request.set_worker(before.worker.value());
  request.set_incarnation(before.incarnation.value());
  request.set_name(options.name);
  request.set_job_fingerprint(options.job_fingerprint);
  SetProtocol(request);
  request.set_train_samples(options.train_samples);
  request.set_test_samples(options.test_samples);
  request.set_data_fingerprint(options.data_fingerprint);
  request.mutable_block_samples()->Assign(options.block_samples.begin(), options.block_samples.end());
  request.set_pid(pid);
  request.set_metrics_address(options.metrics_address);
  request.set_host(HostName());
  request.set_topology(options.topology);
  request.set_group(options.group);
  if (options.optimizer != nullptr) *request.mutable_optimizer() = *options.optimizer;
  for (const TensorInfo& tensor : options.tensors) {
    const auto index = static_cast<size_t>(request.tensors_size());
    wire::TensorSpec& spec = *request.add_tensors();
    if (index < options.tensor_groups.size()) spec.set_group(options.tensor_groups[index]);
    spec.set_name(tensor.name);
    spec.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    spec.set_trained(tensor.trained);
    spec.set_frozen(tensor.frozen);
  }
  return request;
}

wire::WorkerProgress ToWire(const WorkerMembership& life, const StepTotals& progress) {
  const StepFacts& total = progress.total;
  wire::WorkerProgress out;
  const google::protobuf::Reflection& reflection = *out.GetReflection();
  for (size_t i = 0; i < std::size(kFigures); ++i) {
    const google::protobuf::FieldDescriptor* const field = FieldsOfFigures()[i];
    const auto value = ValueOf(kFigures[i], total);
    if (const uint64_t* const count = std::get_if<uint64_t>(&value)) {
      reflection.SetUInt64(&out, field, *count);
    } else {
      reflection.SetDouble(&out, field, std::get<double>(value));
    }
  }
  if (progress.steps == 0) out.set_clock(life.first_clock.value());
  out.set_steps(progress.steps);
  out.set_samples_applied(progress.samples_applied);
  out.set_staleness_answers(total.shards_applied);
  out.set_loss_sum(progress.loss_sum);
  out.set_idle_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(progress.idle)));
  out.set_step_ms_median(absl::ToDoubleMilliseconds(progress.step_median));
  for (size_t i = 0; i < total.staleness.used(); ++i) out.add_staleness_counts(total.staleness.InBucket(i));
  out.set_waiting(progress.waiting);
  out.set_waits_for(progress.waits_for);
  if (total.learning_rate) out.set_learning_rate(*total.learning_rate);
  AddNamedValues(progress.values, out.mutable_values());
  return out;
}

void SetEnergy(const power::EnergyTotals& totals, absl::Time now, wire::WorkerProgress& out) {
  wire::NodeEnergy& energy = *out.mutable_energy();
  energy.set_node(HostName());
  energy.set_machine(power::MachineIdentity());
  energy.set_since_us(absl::ToUnixMicros(totals.since));
  energy.set_until_us(absl::ToUnixMicros(totals.until));
  energy.set_sent_us(absl::ToUnixMicros(now));
  for (const power::DeviceTotals& device : totals.devices) {
    wire::DeviceEnergy& one = *energy.add_devices();
    one.set_device(device.device);
    one.set_watts(device.watts);
    wire::PhaseJoules& joules = *one.mutable_joules();
    joules.set_training(device.joules.training);
    joules.set_validation(device.joules.validation);
    joules.set_test(device.joules.test);
    joules.set_other(device.joules.other);
    if (const auto idle = totals.idle_watts.find(device.device); idle != totals.idle_watts.end())
      one.set_idle_watts(idle->second);
    for (const power::PowerSample& sample : totals.samples) {
      if (sample.device != device.device) continue;
      wire::PowerSample& out_sample = *one.add_samples();
      out_sample.set_at_us(absl::ToUnixMicros(sample.at));
      out_sample.set_watts(sample.watts);
    }
  }
}

wire::HeartbeatRequest MakeHeartbeat(const WorkerMembership& life, const StepTotals& progress) {
  wire::HeartbeatRequest request;
  request.set_job(life.job.value());
  request.set_role(wire::MEMBER_ROLE_WORKER);
  request.set_member(life.worker.value());
  request.set_incarnation(life.incarnation.value());
  *request.mutable_worker() = ToWire(life, progress);
  return request;
}

wire::HeartbeatRequest MakeGoodbye(const WorkerMembership& life, const StepTotals& progress, const std::string& reason,
                                   const RangePart& trained) {
  wire::HeartbeatRequest request = MakeHeartbeat(life, progress);
  request.set_leaving(true);
  request.set_leaving_reason(reason);
  request.set_range(trained.range.value());
  request.set_range_done_to(trained.done_to);
  AddPositions(trained.reached, *request.mutable_reached());
  return request;
}

wire::GetShardMapRequest MakeMapRequest(JobId job) {
  wire::GetShardMapRequest request;
  request.set_job(job.value());
  return request;
}

wire::NextTaskRequest MakeTaskRequest(const WorkerMembership& life, const StepTotals& progress, RangeId range_done,
                                      double samples_per_second) {
  wire::NextTaskRequest request;
  request.set_job(life.job.value());
  request.set_worker(life.worker.value());
  request.set_incarnation(life.incarnation.value());
  request.set_range_done(range_done.value());
  request.set_samples_per_second(samples_per_second);
  *request.mutable_progress() = ToWire(life, progress);
  return request;
}

wire::LeasePartsRequest MakePartsRequest(const WorkerMembership& life, const StreamFacts& stream, uint32_t wanted,
                                         const std::vector<PartPosition>& reached) {
  wire::LeasePartsRequest request;
  request.set_job(life.job.value());
  request.set_worker(life.worker.value());
  request.set_incarnation(life.incarnation.value());
  request.mutable_stream()->set_parts(stream.parts);
  request.mutable_stream()->set_fingerprint(stream.fingerprint);
  request.mutable_stream()->set_passes(stream.passes);
  request.set_wanted(wanted);
  AddPositions(reached, *request.mutable_reached());
  return request;
}

void AddPositions(const std::vector<PartPosition>& positions,
                  google::protobuf::RepeatedPtrField<wire::PartPosition>& out) {
  for (const PartPosition& position : positions) {
    wire::PartPosition& one = *out.Add();
    one.set_lease(position.lease);
    one.set_records(position.records);
    one.set_ended(position.ended);
  }
}

wire::EvaluationReport ToWire(const WorkerMembership& life, const EvaluationResult& result) {
  wire::EvaluationReport report = ToWire(result);
  report.set_job(life.job.value());
  report.set_worker(life.worker.value());
  report.set_incarnation(life.incarnation.value());
  return report;
}

wire::EvaluationReport ToWire(const EvaluationResult& result) {
  const EvaluationMetrics& metrics = result.metrics;
  wire::EvaluationReport report;
  report.set_epoch(result.work.epoch);
  report.set_final(result.work.final);
  report.set_at_samples(result.work.at_samples);
  report.set_samples(metrics.samples);
  SetTestLoss(result.loss, report);
  SetTestAccuracy(metrics.accuracy, report);
  AddNamedValues(metrics.values, report.mutable_values());
  for (size_t i = 0; i < metrics.classes.size(); ++i) {
    wire::ClassReport& out = *report.add_classes();
    out.set_name(result.class_names[i]);
    out.set_samples(metrics.classes[i].samples);
    out.set_precision(metrics.classes[i].precision);
    out.set_recall(metrics.classes[i].recall);
    out.set_f1(metrics.classes[i].f1);
  }
  // The scheduler takes 4 MiB, and so does everybody who asks it for the status.
  if (report.ByteSizeLong() > kClassBytesMax) report.clear_classes();
  report.set_precision_macro(metrics.precision_macro);
  report.set_recall_macro(metrics.recall_macro);
  report.set_f1_macro(metrics.f1_macro);
  report.set_f1_micro(metrics.f1_micro);
  report.set_f1_weighted(metrics.f1_weighted);
  report.set_seconds(result.seconds);
  if (metrics.classes.size() <= kConfusionClassesMax) {
    report.mutable_confusion()->Assign(metrics.confusion.begin(), metrics.confusion.end());
  }
  if (metrics.top5_accuracy) report.set_top5_accuracy(*metrics.top5_accuracy);
  if (metrics.objects) {
    report.set_map_50(metrics.objects->boxes.map_50);
    if (metrics.objects->masks) {
      report.set_mask_map(metrics.objects->masks->map);
      report.set_mask_map_50(metrics.objects->masks->map_50);
    }
  }
  report.mutable_files()->Assign(result.files.begin(), result.files.end());
  return report;
}

absl::StatusOr<Work> FromWire(const wire::NextTaskReply& reply) {
  switch (reply.task_case()) {
    case wire::NextTaskReply::kRange:
      return RangeWork{.range = RangeId(reply.range().range()),
                       .epoch = reply.range().epoch(),
                       .begin = reply.range().begin(),
                       .end = reply.range().end(),
                       .batch_size = reply.range().batch_size()};
    case wire::NextTaskReply::kEvaluate:
      return EvaluationWork{.epoch = reply.evaluate().epoch(),
                            .final = reply.evaluate().final(),
                            .run_folder = reply.evaluate().run_folder(),
                            .at_samples = reply.evaluate().at_samples()};
    case wire::NextTaskReply::kStandby:
      return StandbyWork{.retry = absl::Milliseconds(reply.standby().retry_ms())};
    case wire::NextTaskReply::kLeave:
      return LeaveWork{.reason = reply.leave().reason()};
    case wire::NextTaskReply::TASK_NOT_SET:
      break;
  }
  return absl::InternalError("the scheduler gave a task that is not known here: another version of Slackline?");
}

ShardMap FromWire(const wire::GetShardMapReply& reply) {
  ShardMap map;
  map.generation = Generation(reply.generation());
  map.elements = reply.elements();
  map.trained_elements = reply.trained_elements();
  map.frozen_from = reply.frozen_from();
  for (const wire::ServerSpec& server : reply.servers()) {
    map.servers.push_back({.server = ServerId(server.server()),
                           .name = server.name(),
                           .address = server.address(),
                           .host = server.local().host(),
                           .socket = server.local().socket(),
                           .memory_socket = server.local().memory_socket(),
                           .generation = Generation(server.generation())});
  }
  for (const wire::ShardSpec& shard : reply.shards()) {
    map.shards.push_back({.shard = ShardId(shard.shard()),
                          .begin = shard.begin(),
                          .end = shard.end(),
                          .server = ServerId(shard.server())});
  }
  return map;
}

std::vector<PartLease> FromWire(const wire::LeasePartsReply& reply) {
  std::vector<PartLease> leases;
  for (const wire::PartLease& lease : reply.leases()) {
    leases.push_back({.lease = lease.lease(), .part = lease.part(), .pass = lease.pass(), .records = lease.records()});
  }
  return leases;
}

}  // namespace slackline::worker
