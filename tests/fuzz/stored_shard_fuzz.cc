// A shard that finds any manifest on its disk: it refuses the manifest, or continues from it and gives workers their
// answers.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "common/base/check.h"
#include "common/job/job_file.h"
#include "common/job/optimizer_config.h"
#include "histories.pb.h"
#include "ps/shard/shard_settings.h"
#include "ps/store/manifest.h"
#include "tests/fuzz/text_input.h"

namespace slackline::fuzz {
namespace {

constexpr uint64_t kElements = 100;
const ps::ShardIdentity kIdentity = {JobId(7), ShardId(0), {.begin = 0, .end = kElements, .trained = 90}, {"momentum"}};

// What must be as the shard is, the fuzzer need not find out.
snapshot::Manifest MakeRight(snapshot::Manifest manifest) {
  if (manifest.format() == 0) manifest.set_format(ps::kManifestFormat);
  if (manifest.job() == 0) manifest.set_job(kIdentity.job.value());
  if (manifest.end() == 0) manifest.set_end(kIdentity.extent.end);
  if (manifest.trained() == 0) manifest.set_trained(kIdentity.extent.trained);
  if (manifest.arrays().empty()) manifest.add_arrays(kIdentity.arrays[0]);
  if (manifest.block_elements() == 0) manifest.set_block_elements(32);
  return manifest;
}

job::Job MakeJob(const StoredShard& stored) {
  job::Job job;
  job.mutable_consistency()->set_mode(
      static_cast<job::Consistency::Mode>(1 + stored.mode() % job::Consistency::Mode_MAX));
  return Resolve(job);
}

class Shard {
 public:
  Shard(const StoredShard& stored, const job::Job& job)
      : engine_(ps::MakeEngineConfig(job, Timeouts(), 1000)),
        state_(kIdentity.extent, MakeOptimizerConfig(job, 1000), 32) {
    const snapshot::Manifest manifest = MakeRight(stored.manifest());
    if (!ps::CheckManifest(kIdentity, manifest).ok()) return;
    ps::ToKept(1, manifest);
    const std::string& numbers = stored.numbers();
    const absl::Status read =
        state_.Restore(ps::ToProgress(manifest), [&](std::optional<size_t>, uint64_t begin, absl::Span<float> out) {
          for (float& value : out) value = numbers.empty() ? 0 : numbers[begin++ % numbers.size()];
          return absl::OkStatus();
        });
    if (!read.ok()) return;
    engine_.Restore(ps::ToEngineState(manifest), Lineage(stored.lineage()));
    SLACKLINE_CHECK(engine_.version().lineage >= Lineage(stored.lineage()));
    SLACKLINE_CHECK(!std::isnan(state_.learning_rate()));
    usable_ = true;
  }

  void Play(const EngineEvent& event) {
    if (!usable_) return;
    const ps::Sender sender = {WorkerId(event.worker()), Incarnation(event.incarnation())};
    const Version before = engine_.version();
    ps::Actions actions;
    switch (event.event_case()) {
      case EngineEvent::kMembers:
        engine_.SetMembers(ps::MembersOf(event.members()), actions).IgnoreError();
        break;
      case EngineEvent::kHello:
        engine_.Hello({sender, Clock64(event.hello().first_clock()), Sequence(event.hello().clock())}, actions)
            .IgnoreError();
        break;
      case EngineEvent::kPush:
        Push(sender, event.push(), actions);
        break;
      case EngineEvent::kPull:
        engine_.Pull({sender, PullId(event.pull().id()), Clock64(event.pull().clock())}, now_, actions);
        break;
      case EngineEvent::kPassMs:
        now_ += absl::Milliseconds(event.pass_ms());
        engine_.Tick(now_, actions);
        break;
      case EngineEvent::EVENT_NOT_SET:
        return;
    }
    SLACKLINE_CHECK(engine_.version().lineage == before.lineage && engine_.version().number >= before.number);
    Check(actions);
    engine_.Snapshot();
  }

 private:
  // As ShardHost admits and checks it.
  void Push(const ps::Sender& sender, const wire::PushChunk& chunk, ps::Actions& actions) {
    const wire::PushCommit& commit = chunk.commit();
    ps::PushEvent push = {sender, Sequence(chunk.sequence()), engine_.version(), 1, now_};
    push.samples = std::clamp<uint64_t>(commit.samples(), 1, 1 << 30);
    if (commit.has_base()) push.base = {Lineage(commit.base().lineage()), commit.base().number()};
    if (std::isfinite(commit.gradient_norm())) push.gradient_norm = std::abs(commit.gradient_norm());
    if (chunk.sequence() > 0) engine_.Push(push, actions);
  }

  static void Check(const ps::Actions& actions) {
    for (const ps::Action& action : actions) {
      const auto* const apply = std::get_if<ps::ApplyAction>(&action);
      if (apply == nullptr) continue;
      double weights = 0;
      for (const ps::ApplyAction::Part& part : apply->parts) weights += part.weight;
      SLACKLINE_CHECK(std::abs(weights - 1) < 1e-6);
      SLACKLINE_CHECK(std::isfinite(apply->lr_scale) && std::isfinite(apply->average_rate));
    }
  }

  ps::Engine engine_;
  ps::ShardState state_;
  absl::Time now_ = absl::UnixEpoch();
  bool usable_ = false;
};

}  // namespace

std::unique_ptr<google::protobuf::Message> NewInput() { return std::make_unique<StoredShard>(); }

}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::StoredShard stored;
  if (!slackline::fuzz::ParseText(data, size, stored)) return 0;
  slackline::fuzz::Shard shard(stored, slackline::fuzz::MakeJob(stored));
  for (const slackline::fuzz::EngineEvent& event : stored.events()) shard.Play(event);
  return 0;
}
