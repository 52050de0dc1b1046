#include "ps/replication/backup_feed.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/byte_segments.h"
#include "common/codec/wire_encoding.h"
#include "common/process/kill_point.h"
#include "ps/host/peer.h"
#include "ps/shard/learning_rates.h"
#include "ps/store/manifest.h"

namespace slackline::ps {
namespace {

// Reads arrays that came in pieces, each from front to back.
class ArrayReader {
 public:
  explicit ArrayReader(const std::vector<std::vector<rpc::Payload>>& arrays) {
    for (const std::vector<rpc::Payload>& array : arrays) {
      for (const rpc::Payload& piece : array) bytes_.Append(piece.segments());
    }
  }
  absl::Status Read(absl::Span<float> values) {
    if (!reader_) reader_.emplace(bytes_);
    if (reader_->left() < values.size() * sizeof(float)) return absl::DataLossError("the arrays are too short");
    reader_->Read(values.data(), values.size() * sizeof(float));
    return absl::OkStatus();
  }

 private:
  ByteSegments bytes_;
  std::optional<ByteReader> reader_;
};

ShardIdentity IdentityOf(JobId job, const ShardHost& host) {
  return {job, host.config().shard, host.config().extent, host.arrays()};
}

uint64_t ElementsOf(const ShardHost& host, size_t array) {
  const ShardExtent& extent = host.config().extent;
  return array == 0 ? extent.size() : ArrayElements(extent, host.arrays()[array - 1]);
}

bool Sensible(const wire::ReplicaStep& step) {
  const double numbers[] = {step.weight(),       step.gradient_norm(), step.lr_scale(),
                            step.average_rate(), step.batches(),       step.staleness()};
  return absl::c_all_of(numbers, [](double number) { return std::isfinite(number) && number >= 0; });
}

}  // namespace

BackupFeed::BackupFeed(JobId job, const Hosts& hosts, const TimeSource& time)
    : job_(job), time_(time), heard_(time.Now()) {
  for (const auto& [id, host] : hosts) {
    Copy& copy = copies_[id];
    copy.host = host.get();
    copy.arrays.resize(1 + host->arrays().size());
  }
}

absl::Status BackupFeed::Receive(const wire::ReplicaFrame& frame, const rpc::Payload& payload) {
  heard_ = time_.Now();
  absl::Status status = HandleAll(frame, payload);
  // What is wrong, or does not have all, must not take over.
  if (!status.ok()) in_step_ = false;
  return status;
}

absl::Status BackupFeed::HandleAll(const wire::ReplicaFrame& frame, const rpc::Payload& payload) {
  rpc::PayloadCutter payloads(payload);
  for (const wire::ReplicaItem& item : frame.items()) {
    if (item.payload_bytes() > payloads.left()) {
      return absl::InvalidArgumentError(absl::StrCat("an item claims ", item.payload_bytes(), " bytes of payload, ",
                                                     payloads.left(), " are left in the frame"));
    }
    if (absl::Status status = Handle(item, payloads.Next(item.payload_bytes())); !status.ok()) return status;
    ++handled_;
  }
  if (payloads.left() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(payloads.left(), " bytes of payload belong to no item"));
  }
  echo_us_ = std::max(echo_us_, frame.sent_us());
  kill_point::Passed("backup");
  return absl::OkStatus();
}

absl::Status BackupFeed::Handle(const wire::ReplicaItem& item, rpc::Payload payload) {
  switch (item.body_case()) {
    case wire::ReplicaItem::kArray:
      return Handle(item.array(), std::move(payload));
    case wire::ReplicaItem::kBase:
      return Handle(item.base());
    case wire::ReplicaItem::kBytes:
      return Handle(item.bytes(), std::move(payload));
    case wire::ReplicaItem::kStep:
      return Handle(item.step());
    case wire::ReplicaItem::kAnswer:
      return Handle(item.answer());
    case wire::ReplicaItem::kClock:
      return Handle(item.clock());
    case wire::ReplicaItem::kInStep:
      return HandleInStep();
    case wire::ReplicaItem::kCheck:
      return Handle(item.check());
    case wire::ReplicaItem::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("an item without a body");
}

absl::StatusOr<BackupFeed::Copy*> BackupFeed::Find(uint32_t shard, bool based) {
  const auto found = copies_.find(shard);
  if (found == copies_.end()) return absl::InvalidArgumentError(absl::StrCat("shard ", shard, " is not here"));
  if (found->second.based != based) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, based ? " has no base yet" : " has its base already"));
  }
  return &found->second;
}

absl::Status BackupFeed::Handle(const wire::ReplicaArray& array, rpc::Payload payload) {
  const absl::StatusOr<Copy*> copy = Find(array.shard(), /*based=*/false);
  if (!copy.ok()) return copy.status();
  std::vector<std::vector<rpc::Payload>>& arrays = (*copy)->arrays;
  if (array.array() >= arrays.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("array ", array.array(), "; the shard has ", arrays.size(), ", counted from 0"));
  }
  uint64_t bytes = payload.size();
  for (const rpc::Payload& piece : arrays[array.array()]) bytes += piece.size();
  if (payload.size() != array.elements() * sizeof(float) ||
      bytes > ElementsOf(*(*copy)->host, array.array()) * sizeof(float)) {
    return absl::InvalidArgumentError(absl::StrCat("a piece of ", payload.size(), " bytes for ", array.elements(),
                                                   " elements, ", bytes, " bytes of the array with it; the array has ",
                                                   ElementsOf(*(*copy)->host, array.array()), " elements"));
  }
  arrays[array.array()].push_back(std::move(payload));
  return absl::OkStatus();
}

absl::Status BackupFeed::Handle(const wire::ReplicaBase& base) {
  const absl::StatusOr<Copy*> found = Find(base.state().shard(), /*based=*/false);
  if (!found.ok()) return found.status();
  Copy& copy = **found;
  if (absl::Status status = CheckManifest(IdentityOf(job_, *copy.host), base.state()); !status.ok()) return status;
  ArrayReader reader(copy.arrays);
  const absl::Status adopted = copy.host->Adopt([&](ShardState& state) -> absl::StatusOr<EngineState> {
    // The arrays are asked for in their order.
    const absl::Status read =
        state.Restore(ToProgress(base.state()), [&](std::optional<size_t> /*array*/, uint64_t /*begin*/,
                                                    absl::Span<float> values) { return reader.Read(values); });
    if (!read.ok()) return read;
    return ToEngineState(base.state());
  });
  if (!adopted.ok()) return adopted;
  copy.based = true;
  copy.arrays.clear();
  return absl::OkStatus();
}

absl::Status BackupFeed::Handle(const wire::ReplicaBytes& bytes, rpc::Payload payload) {
  const absl::StatusOr<Copy*> found = Find(bytes.shard(), /*based=*/true);
  if (!found.ok()) return found.status();
  Copy& copy = **found;
  const absl::StatusOr<codec::Codec> codec = CodecFromWire(bytes.encoding());
  if (!codec.ok()) return codec.status();
  if (copy.step == nullptr) copy.step = std::make_shared<StagedPush>();
  const uint64_t elements = copy.host->config().extent.pushed();
  const bool last = bytes.offset() + bytes.elements() == elements;
  if (absl::Status status =
          copy.step->Add({bytes.offset(), bytes.elements(), *codec, last}, {elements, UINT64_MAX}, std::move(payload));
      !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("shard ", bytes.shard(), ": ", status.message()));
  }
  copy.step_complete = last;
  return absl::OkStatus();
}

absl::Status BackupFeed::Handle(const wire::ReplicaStep& step) {
  const absl::StatusOr<Copy*> found = Find(step.shard(), /*based=*/true);
  if (!found.ok()) return found.status();
  Copy& copy = **found;
  const bool empty = copy.host->config().extent.pushed() == 0;
  if (!copy.step_complete && !empty) {
    return absl::InvalidArgumentError(absl::StrCat("a step of shard ", step.shard(), " without all of its gradient"));
  }
  if (!Sensible(step)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step with a number that is negative or not finite: ", step.ShortDebugString()));
  }
  const size_t groups = copy.host->config().optimizer.groups.size();
  if (absl::Status rates = CheckLearningRates(step.learning_rates(), groups); !rates.ok()) return rates;
  JournalStep record;
  record.version = FromWire(step.version());
  record.arguments = {.lr_scale = step.lr_scale(),
                      .average_rate = step.average_rate(),
                      .samples = step.samples(),
                      .batches = step.batches(),
                      .staleness = step.staleness(),
                      .learning_rates = {step.learning_rates().begin(), step.learning_rates().end()}};
  record.push = empty ? std::make_shared<StagedPush>() : std::move(copy.step);
  record.weight = step.weight();
  record.gradient_norm = step.gradient_norm();
  for (const wire::ReplicaAnswer& answer : step.answers()) {
    const absl::StatusOr<Answer> known = FromMessage(answer.answer());
    if (!known.ok()) return known.status();
    record.answers.emplace_back(Sender{WorkerId(answer.worker()), Incarnation(answer.incarnation())}, *known);
  }
  copy.step = nullptr;
  copy.step_complete = false;
  return copy.host->Follow(record);
}

absl::Status BackupFeed::Handle(const wire::ReplicaAnswer& answer) {
  const absl::StatusOr<Copy*> copy = Find(answer.shard(), /*based=*/true);
  if (!copy.ok()) return copy.status();
  const absl::StatusOr<Answer> known = FromMessage(answer.answer());
  if (!known.ok()) return known.status();
  (*copy)->host->followed().Answered({WorkerId(answer.worker()), Incarnation(answer.incarnation())}, *known);
  return absl::OkStatus();
}

absl::Status BackupFeed::Handle(const wire::ReplicaClock& clock) {
  const absl::StatusOr<Copy*> copy = Find(clock.shard(), /*based=*/true);
  if (!copy.ok()) return copy.status();
  const Sender sender = {WorkerId(clock.worker()), Incarnation(clock.incarnation())};
  if (clock.left()) {
    (*copy)->host->followed().Left(sender);
  } else {
    (*copy)->host->followed().Joined(sender, Clock64(clock.clock()));
  }
  return absl::OkStatus();
}

absl::Status BackupFeed::Handle(const wire::ReplicaCheck& check) {
  const absl::StatusOr<Copy*> copy = Find(check.shard(), /*based=*/true);
  if (!copy.ok()) return copy.status();
  return (*copy)->host->Compare(FromWire(check.version()), check.checksum());
}

absl::Status BackupFeed::HandleInStep() {
  for (const auto& [id, copy] : copies_) {
    if (!copy.based) return absl::InvalidArgumentError(absl::StrCat("in step, but shard ", id, " has no base"));
  }
  in_step_ = true;
  return absl::OkStatus();
}

}  // namespace slackline::ps
