#include "ps/store/manifest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::ps {
namespace {

void Add(const WorkerClock& worker, snapshot::WorkerClock& out) {
  out.set_worker(worker.sender.worker.value());
  out.set_incarnation(worker.sender.incarnation.value());
  out.set_clock(worker.clock.value());
  for (const Answer& answer : worker.answers) *out.add_answers() = ToMessage(answer);
}

Version VersionOf(uint64_t lineage, uint64_t number) { return {Lineage(static_cast<uint32_t>(lineage)), number}; }

Answer Read(const snapshot::Answer& answer) {
  return {.sequence = Sequence(answer.sequence()),
          .outcome = answer.applied() ? Outcome::kApplied : Outcome::kDiscarded,
          .reason = static_cast<DiscardReason>(answer.reason()),
          .version = VersionOf(answer.lineage(), answer.version()),
          .staleness = answer.staleness()};
}

WorkerClock Read(const snapshot::WorkerClock& worker) {
  WorkerClock out = {.sender = {WorkerId(worker.worker()), Incarnation(worker.incarnation())},
                     .clock = Clock64(worker.clock()),
                     .answers = {}};
  for (const snapshot::Answer& answer : worker.answers()) out.answers.push_back(Read(answer));
  return out;
}

std::string Words(const ShardIdentity& identity) {
  return absl::StrCat("shard ", identity.shard.value(), " of job ", identity.job.value(), " with elements ",
                      identity.extent.begin, " to ", identity.extent.end, ", ", identity.extent.trained,
                      " of them trained, and the arrays [", absl::StrJoin(identity.arrays, ", "), "]");
}

ShardIdentity IdentityOf(const snapshot::Manifest& manifest) {
  return {.job = JobId(manifest.job()),
          .shard = ShardId(manifest.shard()),
          .extent = {.begin = manifest.begin(), .end = manifest.end(), .trained = manifest.trained()},
          .arrays = {manifest.arrays().begin(), manifest.arrays().end()}};
}

bool ReasonKnown(const snapshot::Answer& answer) {
  return answer.reason() <= static_cast<uint32_t>(DiscardReason::kOutlier);
}

}  // namespace

snapshot::Answer ToMessage(const Answer& answer) {
  snapshot::Answer to;
  to.set_sequence(answer.sequence.value());
  to.set_applied(answer.outcome == Outcome::kApplied);
  to.set_reason(static_cast<uint32_t>(answer.reason));
  to.set_lineage(answer.version.lineage.value());
  to.set_version(answer.version.number);
  to.set_staleness(answer.staleness);
  return to;
}

absl::StatusOr<Answer> FromMessage(const snapshot::Answer& answer) {
  if (!ReasonKnown(answer)) return absl::DataLossError("an answer whose reason is not known");
  return Read(answer);
}

snapshot::Manifest ToManifest(const ShardIdentity& identity, const ShardSnapshot& snapshot, uint64_t bytes) {
  snapshot::Manifest out;
  out.set_format(kManifestFormat);
  out.set_job(identity.job.value());
  out.set_shard(identity.shard.value());
  out.set_begin(identity.extent.begin);
  out.set_end(identity.extent.end);
  out.set_trained(identity.extent.trained);
  out.set_block_elements(snapshot.numbers.weights.chunk_elements());
  for (const std::string& name : identity.arrays) out.add_arrays(name);
  out.set_lineage(snapshot.engine.version.lineage.value());
  out.set_version(snapshot.engine.version.number);
  out.set_samples_applied(snapshot.numbers.progress.samples_applied);
  out.set_optimizer_steps(snapshot.numbers.progress.steps);
  out.set_staleness_mean(snapshot.numbers.progress.staleness_mean);
  out.set_engine_samples(snapshot.engine.samples_applied);
  out.set_clock_floor(snapshot.engine.clock_floor.value());
  for (const WorkerClock& worker : snapshot.engine.workers) Add(worker, *out.add_workers());
  for (const Sender& gone : snapshot.engine.gone) {
    snapshot::WorkerClock& entry = *out.add_gone();
    entry.set_worker(gone.worker.value());
    entry.set_incarnation(gone.incarnation.value());
  }
  out.set_taken_unix_us(absl::ToUnixMicros(snapshot.taken));
  out.set_bytes(bytes);
  return out;
}

absl::Status CheckManifest(const ShardIdentity& identity, const snapshot::Manifest& manifest) {
  if (manifest.format() != kManifestFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("a snapshot of format ", manifest.format(), "; this program knows format ", kManifestFormat));
  }
  const ShardIdentity found = IdentityOf(manifest);
  if (Words(found) != Words(identity)) {
    return absl::FailedPreconditionError(
        absl::StrCat("found a snapshot of ", Words(found), "; wanted is ", Words(identity)));
  }
  if (manifest.block_elements() == 0) return absl::DataLossError("a snapshot with blocks of 0 elements");
  const bool reasons_known =
      std::all_of(manifest.workers().begin(), manifest.workers().end(), [](const snapshot::WorkerClock& worker) {
        return std::all_of(worker.answers().begin(), worker.answers().end(), ReasonKnown);
      });
  if (!reasons_known) return absl::DataLossError("a snapshot with an answer whose reason is not known");
  return absl::OkStatus();
}

KeptSnapshot ToKept(uint64_t id, const snapshot::Manifest& manifest) {
  return {.id = id,
          .version = VersionOf(manifest.lineage(), manifest.version()),
          .bytes = manifest.bytes(),
          .taken = absl::FromUnixMicros(manifest.taken_unix_us())};
}

EngineState ToEngineState(const snapshot::Manifest& manifest) {
  EngineState state = {.version = VersionOf(manifest.lineage(), manifest.version()),
                       .samples_applied = manifest.engine_samples(),
                       .clock_floor = Clock64(manifest.clock_floor()),
                       .workers = {},
                       .gone = {}};
  for (const snapshot::WorkerClock& worker : manifest.workers()) state.workers.push_back(Read(worker));
  for (const snapshot::WorkerClock& gone : manifest.gone()) state.gone.push_back(Read(gone).sender);
  return state;
}

ShardProgress ToProgress(const snapshot::Manifest& manifest) {
  return {.samples_applied = manifest.samples_applied(),
          .steps = manifest.optimizer_steps(),
          .staleness_mean = manifest.staleness_mean()};
}

}  // namespace slackline::ps
