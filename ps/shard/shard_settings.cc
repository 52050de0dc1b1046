#include "ps/shard/shard_settings.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"

namespace slackline::ps {

EngineConfig MakeEngineConfig(const job::Job& job, const Timeouts& timeouts, uint64_t samples_per_epoch) {
  const job::Consistency& consistency = job.consistency();
  EngineConfig config;
  config.mode = FactsOf(consistency).mode;
  config.staleness_max = consistency.staleness_max();
  config.softsync_n = consistency.softsync_n();
  config.quorum = consistency.quorum();
  config.quorum_deadline = absl::Milliseconds(consistency.quorum_deadline_ms());
  config.count_late = consistency.late() == job::Consistency::COUNT;
  config.grace = consistency.grace() == job::QuorumGrace::ADAPTIVE;
  if (consistency.weighting() == job::Consistency::UNIFORM) config.weighting = Weighting::kUniform;
  if (consistency.staleness_lr() == job::Consistency::INVERSE) config.staleness_lr = StalenessLr::kInverse;
  config.samples_nominal = SamplesOfPush(job, samples_per_epoch);
  config.outlier_factor = job.local().outlier_factor();
  config.notice_every = timeouts.notice();
  config.standstill_after = timeouts.worker_dead();
  return config;
}

absl::Duration TickEvery(const job::Job& job, const Timeouts& timeouts) {
  constexpr absl::Duration kShortest = absl::Milliseconds(5);
  const job::Consistency& consistency = job.consistency();
  absl::Duration every = timeouts.heartbeat;
  if (consistency.quorum_deadline_ms() > 0) {
    every = std::min(every, absl::Milliseconds(consistency.quorum_deadline_ms()) / 4);
  }
  if (consistency.grace() == job::QuorumGrace::ADAPTIVE) every = absl::ZeroDuration();
  return std::min(timeouts.heartbeat, std::max(every, kShortest));
}

absl::Status CheckParts(const wire::InstallShardsRequest& request, int groups) {
  if (request.frozen_from() > 0 && request.frozen_from() < request.trained_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("elements are frozen from ", request.frozen_from(), " on, but ",
                                                   request.trained_elements(), " are trained"));
  }
  uint64_t end = 0;
  for (const wire::GroupRange& range : request.groups()) {
    if (range.begin() < end || range.end() <= range.begin() || range.end() > request.trained_elements()) {
      return absl::InvalidArgumentError(absl::StrCat("a range of a group from ", range.begin(), " to ", range.end(),
                                                     " behind one that ends at ", end, ", of ",
                                                     request.trained_elements(), " trained elements"));
    }
    if (range.group() >= static_cast<uint32_t>(groups)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a range of group ", range.group(), " (counted from 0); the job file has ", groups, " groups"));
    }
    end = range.end();
  }
  return absl::OkStatus();
}

ShardExtent ExtentOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec) {
  const auto behind = [&](uint64_t element) { return std::clamp(element, spec.begin(), spec.end()); };
  return {.begin = spec.begin(),
          .end = spec.end(),
          .trained = behind(request.trained_elements()) - spec.begin(),
          .frozen = request.frozen_from() > 0 ? spec.end() - behind(request.frozen_from()) : 0};
}

std::vector<GroupRun> RunsOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec) {
  std::vector<GroupRun> runs;
  uint64_t end = spec.begin();
  for (const wire::GroupRange& range : request.groups()) {
    const uint64_t from = std::max(range.begin(), spec.begin()), to = std::min(range.end(), spec.end());
    if (from >= to) continue;
    if (from > end) runs.push_back({.end = from - spec.begin(), .group = std::nullopt});
    runs.push_back({.end = to - spec.begin(), .group = range.group()});
    end = to;
  }
  return runs;
}

MemberSet MembersOf(const wire::SetMembersRequest& request) {
  MemberSet set = {.epoch = Epoch(request.epoch())};
  for (const wire::Member& member : request.members()) {
    set.members.push_back({{WorkerId(member.worker()), Incarnation(member.incarnation())}, member.name()});
  }
  if (request.has_since_epoch()) set.since = Epoch(request.since_epoch());
  for (const uint32_t worker : request.gone()) set.gone.push_back(WorkerId(worker));
  return set;
}

}  // namespace slackline::ps
