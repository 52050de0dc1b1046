#include "scheduler/control/state_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/members/membership.h"
#include "scheduler/work/stream_parts.h"

namespace slackline::scheduler {
namespace {

// Far from where numbers that go on overflow; a restart leaves out a million.
constexpr uint64_t kNumberMax = uint64_t{1} << 62;
constexpr double kSecondsMax = 1e10;

absl::Status Broken(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the saved state makes no sense: ", what));
}

bool IsSpan(double seconds) { return seconds >= 0 && seconds <= kSecondsMax; }

// --- Members ----------------------------------------------------------------------------------------------------

// Numbers are given one after the other.
template <typename Numbers>
bool AreFromOne(const Numbers& numbers) {
  return numbers.empty() || (*numbers.begin() == 1 && *numbers.rbegin() == numbers.size());
}

absl::Status CheckWorkers(const state::Members& members) {
  std::set<uint32_t> numbers;
  for (const state::Worker& worker : members.workers()) {
    const bool known = worker.state() < kWorkerStates && worker.incarnation() <= members.last_incarnation();
    if (!known || worker.first_clock() > kNumberMax || !IsSpan(worker.excused_s())) {
      return Broken(absl::StrCat("worker ", worker.worker(), " with state ", worker.state(), ", incarnation ",
                                 worker.incarnation(), ", first clock ", worker.first_clock(), ", excused for ",
                                 worker.excused_s(), " s"));
    }
    if (!numbers.insert(worker.worker()).second) return Broken(absl::StrCat("two workers ", worker.worker()));
  }
  // An earlier version forgot nobody, and did not say the largest number.
  const uint64_t forgotten = uint64_t{members.left_forgotten()} + members.dead_forgotten();
  const uint32_t largest = numbers.empty() ? 0 : *numbers.rbegin();
  const uint32_t last = members.last_worker() == 0 ? largest : members.last_worker();
  if (numbers.contains(0) || largest > last || numbers.size() + forgotten != last || last > kWorkerNumberMax) {
    return Broken(absl::StrCat(numbers.size(), " workers and ", forgotten,
                               " forgotten ones that are not numbered from 1 to ", last));
  }
  return absl::OkStatus();
}

absl::Status CheckServers(const state::Scheduler& state, uint32_t servers_max) {
  std::set<uint32_t> numbers;
  for (const state::Server& server : state.members().servers()) {
    const bool known = server.state() <= static_cast<uint32_t>(ServerState::kLeft) &&
                       server.incarnation() <= state.members().last_incarnation();
    if (!known || server.generation() > state.generation() || !IsSpan(server.lost_s())) {
      return Broken(absl::StrCat("server ", server.server(), " with state ", server.state(), ", incarnation ",
                                 server.incarnation(), ", generation ", server.generation(), ", lost for ",
                                 server.lost_s(), " s"));
    }
    if (!numbers.insert(server.server()).second) return Broken(absl::StrCat("two servers ", server.server()));
  }
  if (numbers.size() > servers_max) {
    return Broken(absl::StrCat(numbers.size(), " servers; the job has ", servers_max));
  }
  if (state.has_placement() && !numbers.contains(0)) return absl::OkStatus();  // some have come and some have gone
  return AreFromOne(numbers) ? absl::OkStatus() : Broken("servers that are not numbered from 1");
}

absl::Status CheckBackups(const state::Scheduler& state) {
  const auto known = [&](uint32_t number) { return number >= 1 && number <= uint32_t(state.members().servers_size()); };
  std::set<uint32_t> seen;
  for (const state::Backup& backup : state.backups()) {
    if (!known(backup.server()) || !seen.insert(backup.server()).second) {
      return Broken(absl::StrCat("a backup of server ", backup.server(), ", which is not there or has another"));
    }
    if (std::max(backup.incarnation(), backup.server_incarnation()) > state.members().last_incarnation()) {
      return Broken(
          absl::StrCat("a backup of server ", backup.server(), " with an incarnation that was not given yet"));
    }
    if (!backup.name().empty() && backup.address().empty()) return Broken("a backup without an address");
  }
  for (const uint32_t server : state.promoted()) {
    if (!known(server)) return Broken(absl::StrCat("server ", server, ", which is not there, as promoted"));
  }
  return absl::OkStatus();
}

absl::Status CheckPlacement(const state::Scheduler& state) {
  if (!state.has_placement()) return absl::OkStatus();
  // More than anybody has.
  constexpr uint32_t kServersMax = 1 << 20;
  const state::Placement& placement = state.placement();
  std::set<uint32_t> members, joining;
  for (const state::Server& server : state.members().servers()) members.insert(server.server());
  const uint32_t largest = std::max({placement.added(), placement.places(), placement.to_come()});
  if (members.size() != placement.places() || largest > kServersMax || placement.last_move() > kNumberMax) {
    return Broken(absl::StrCat(placement.places(), " places for ", members.size(), " servers, ", placement.added(),
                               " added, ", placement.to_come(), " to come, after ", placement.last_move(), " moves"));
  }
  for (const uint32_t server : placement.servers()) {
    if (!members.contains(server)) return Broken(absl::StrCat("a shard on server ", server, ", which is not there"));
  }
  for (const uint32_t server : placement.draining()) {
    if (!members.contains(server)) return Broken(absl::StrCat("server ", server, ", which is not there, as draining"));
  }
  for (const state::Server& server : placement.joining()) {
    const bool known = server.incarnation() <= state.members().last_incarnation() && server.server() < kServersMax;
    if (!known || server.server() == 0 || server.address().empty() || members.contains(server.server()) ||
        !joining.insert(server.server()).second) {
      return Broken(absl::StrCat("server ", server.server(), ", incarnation ", server.incarnation(), ", as joining"));
    }
  }
  if (!placement.has_move()) return absl::OkStatus();
  const state::Move& move = placement.move();
  const bool sensible = members.contains(move.from()) && members.contains(move.to()) && move.from() != move.to();
  if (sensible && move.number() <= placement.last_move()) return absl::OkStatus();
  return Broken(absl::StrCat("move ", move.number(), " from server ", move.from(), " to ", move.to()));
}

// --- Work -------------------------------------------------------------------------------------------------------

// What of the epochs that have begun is free or with somebody, and how much is done.
class EpochsCheck {
 public:
  EpochsCheck(const state::Ranges& ranges, uint64_t samples) : ranges_(ranges), samples_(samples) {}

  absl::Status Check() {
    for (const state::Span& span : ranges_.free()) spans_.emplace_back(span.epoch(), span.begin(), span.end());
    for (const state::Lease& lease : ranges_.leased()) {
      const state::Span& span = lease.span();
      if (!holders_.emplace(lease.holder().worker(), lease.holder().incarnation()).second) {
        return Broken(absl::StrCat("worker ", lease.holder().worker(), " with two ranges"));
      }
      spans_.emplace_back(span.epoch(), span.begin(), span.end());
      leased_ += span.end() - span.begin();
    }
    if (absl::Status status = CheckSpans(); !status.ok()) return status;
    return CheckSums();
  }

 private:
  // Each within an epoch that has begun and is not complete, none over another.
  absl::Status CheckSpans() {
    std::sort(spans_.begin(), spans_.end());
    std::tuple<uint32_t, uint64_t> next = {ranges_.epochs_done(), 0};
    for (const auto& [epoch, begin, end] : spans_) {
      if (epoch >= ranges_.next_epoch() || begin >= end || end > samples_ || std::tuple(epoch, begin) < next) {
        return Broken(absl::StrCat("samples ", begin, " to ", end, " of epoch ", epoch, "; epochs ",
                                   ranges_.epochs_done(), " to ", ranges_.next_epoch(), " are under way, with ",
                                   samples_, " samples each, to be trained once"));
      }
      left_[epoch] += end - begin;
      next = {epoch, end};
    }
    return absl::OkStatus();
  }

  absl::Status CheckSums() const {
    uint64_t done = uint64_t{ranges_.epochs_done()} * samples_;
    for (const auto& [epoch, samples] : ranges_.done()) done += samples;
    // Of epochs without samples left or done nothing is said.
    std::map<uint32_t, uint64_t> sums = left_;
    for (const auto& [epoch, samples] : ranges_.done()) sums[epoch] += samples;
    const bool whole = std::all_of(sums.begin(), sums.end(), [&](const auto& sum) {
      return sum.second == samples_ && sum.first >= ranges_.epochs_done() && sum.first < ranges_.next_epoch();
    });
    if (!whole || sums.size() != ranges_.next_epoch() - ranges_.epochs_done()) {
      return Broken("epochs whose samples are not all free, given out or done");
    }
    if (done == ranges_.samples_done() && leased_ == ranges_.samples_leased()) return absl::OkStatus();
    return Broken(absl::StrCat(ranges_.samples_done(), " samples done and ", ranges_.samples_leased(),
                               " given out; the ranges say ", done, " and ", leased_));
  }

  const state::Ranges& ranges_;
  const uint64_t samples_;
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> spans_;
  std::set<std::pair<uint32_t, uint64_t>> holders_;
  std::map<uint32_t, uint64_t> left_;
  uint64_t leased_ = 0;
};

absl::Status CheckEvaluation(const state::Evaluation& evaluation, uint32_t epochs) {
  if (evaluation.epoch() <= epochs) return absl::OkStatus();
  return Broken(absl::StrCat("an evaluation of epoch ", evaluation.epoch(), " of ", epochs));
}

// Every part at most once, in a pass that has begun.
absl::Status CheckStream(const state::Stream& stream) {
  if (absl::Status good = StreamParts::Check(stream.stream()); !good.ok()) return Broken(good.message());
  std::set<std::pair<uint32_t, uint32_t>> parts;
  std::set<uint64_t> leases;
  for (const state::StreamPart& open : stream.open()) {
    const bool known = open.pass() < stream.next_pass() && open.part() < stream.stream().parts();
    const bool lent = !open.has_holder() || (open.lease() <= stream.last_lease() && leases.insert(open.lease()).second);
    if (known && lent && parts.emplace(open.pass(), open.part()).second) continue;
    return Broken(absl::StrCat("part ", open.part(), " of pass ", open.pass(), " with lease ", open.lease()));
  }
  if (stream.last_lease() <= kNumberMax) return absl::OkStatus();
  return Broken(absl::StrCat(stream.last_lease(), " leases of parts"));
}

absl::Status CheckTasks(const state::Tasks& tasks, uint64_t samples, uint32_t epochs) {
  const state::Ranges& ranges = tasks.ranges();
  if (ranges.epochs_done() > ranges.next_epoch() || ranges.next_epoch() > epochs || ranges.last_id() > kNumberMax) {
    return Broken(absl::StrCat(ranges.epochs_done(), " epochs done and ", ranges.next_epoch(), " begun of ", epochs,
                               ", ", ranges.last_id(), " ranges"));
  }
  if (absl::Status status = EpochsCheck(ranges, samples).Check(); !status.ok()) return status;
  if (tasks.has_stream()) {
    if (absl::Status status = CheckStream(tasks.stream()); !status.ok()) return status;
  }
  if (absl::Status status = CheckEvaluation(tasks.due(), epochs); !status.ok()) return status;
  for (const state::Evaluation& evaluation : tasks.assigned()) {
    if (absl::Status status = CheckEvaluation(evaluation, epochs); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const state::Scheduler& state) {
  const uint64_t largest =
      std::max({state.generation(), state.members().epoch(), state.members().last_incarnation(), state.events()});
  if (largest > kNumberMax) return Broken(absl::StrCat("a number of ", largest, "; allowed is at most ", kNumberMax));
  if (!IsSpan(state.elapsed_s()) || !IsSpan(state.trained_s())) {
    return Broken(absl::StrCat("training for ", state.elapsed_s(), " s, done after ", state.trained_s(), " s"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckState(const state::Scheduler& state, const job::Job& job) {
  if (absl::Status status = CheckNumbers(state); !status.ok()) return status;
  if (absl::Status status = CheckWorkers(state.members()); !status.ok()) return status;
  const uint32_t places = state.has_placement() ? state.placement().places() : job.cluster().servers();
  if (absl::Status status = CheckServers(state, places); !status.ok()) return status;
  if (absl::Status status = CheckPlacement(state); !status.ok()) return status;
  if (absl::Status status = CheckBackups(state); !status.ok()) return status;
  if (state.job_state() < wire::JOB_STARTING || state.job_state() > wire::JOB_STOPPED) {
    return Broken(absl::StrCat("job state ", state.job_state()));
  }
  const bool begun = state.job_state() == wire::JOB_TRAINING || state.job_state() == wire::JOB_DONE;
  const auto servers = static_cast<uint32_t>(state.members().servers_size());
  if (begun && (!state.has_first_worker() || servers != places)) {
    return Broken(absl::StrCat("training with ", servers, " of ", places, " servers and ",
                               state.has_first_worker() ? "a" : "no", " model"));
  }
  if (state.optimizer_awaited() && (begun || state.has_placement())) {
    return Broken("shards are placed, and no worker has said what the optimizer is");
  }
  if (!state.has_first_worker()) return absl::OkStatus();
  return CheckTasks(state.tasks(), state.first_worker().train_samples(), job.training().epochs());
}

}  // namespace slackline::scheduler
