// What monitoring sees of the members: how many there are, how far they are, and where to ask them; and how large
// batches of each are.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/address.h"
#include "common/job/push_samples.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {
namespace {

// So many times as fast as another worker: what holds up everybody is left to it.
constexpr double kMuchFaster = 2;

std::string NameOfState(wire::JobState state) {
  switch (state) {
    case wire::JOB_TRAINING:
      return "training";
    case wire::JOB_DONE:
      return "done";
    case wire::JOB_FAILED:
      return "failed";
    case wire::JOB_STOPPED:
      return "stopped";
    default:
      return "starting";
  }
}

}  // namespace

void Controller::NoteServerMetrics(const wire::RegisterServerRequest& request) {
  std::set<std::string> names = {request.name()};
  for (const auto& [id, server] : membership_.servers()) names.insert(server.name);
  for (const auto& [id, spare] : Spares()) names.insert(spare.name);
  std::erase_if(server_metrics_, [&](const auto& entry) { return !names.contains(entry.first); });
  server_metrics_[request.name()] = request.metrics_address();
}

std::vector<ScrapeTarget> Controller::ScrapeTargets() const {
  absl::MutexLock lock(&mutex_);
  std::vector<ScrapeTarget> targets;
  const auto add = [&targets](const std::string& address, const std::string& process, const char* role) {
    if (!address.empty() && AddressMistake(address).empty()) targets.push_back({address, process, role});
  };
  const auto add_server = [&](const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto known = server_metrics_.find(name);
    if (known != server_metrics_.end()) add(known->second, name, "server");
  };
  for (const auto& [id, server] : membership_.servers()) {
    if (server.state == ServerState::kLive) add_server(server.name);
  }
  for (const auto& [id, spare] : Spares()) add_server(spare.name);
  for (const auto& [id, worker] : membership_.workers()) {
    if (worker.state == WorkerState::kLeft || worker.state == WorkerState::kDead) continue;
    if (const auto known = origins_.find(id); known != origins_.end()) {
      add(known->second.metrics, worker.name, "worker");
    }
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

MembersView Controller::Members() const {
  absl::MutexLock lock(&mutex_);
  MembersView view;
  view.job_state = NameOfState(state_);
  for (size_t state = 0; state < kWorkerStates; ++state) {
    const auto which = static_cast<WorkerState>(state);
    view.workers[std::string(ToString(which))] = membership_.CountIn(which);
  }
  view.servers = {{"live", 0}, {"dead", 0}, {"left", 0}, {"joining", moves_.joining().size()}, {"backup", 0}};
  for (const auto& [id, server] : membership_.servers()) ++view.servers[std::string(ToString(server.state))];
  view.servers["backup"] = backups_.CountInStep();
  view.servers["catching_up"] = backups_.all().size() - backups_.CountInStep();
  view.workers_wanted = config_.job.cluster().workers();
  view.servers_wanted = moves_.ServersWanted();
  view.backups_wanted = Replicated() ? membership_.places() : 0;
  view.samples_done = SamplesDone();
  view.samples_total = tasks_ ? tasks_->ranges().samples_total() : 0;
  view.events = events_.count();
  for (const auto& [id, worker] : membership_.workers()) {
    if (view.clocks.size() == MembersView::kNamedClocksMax) break;
    if (worker.state != WorkerState::kLive) continue;
    const wire::WorkerProgress* const progress = progress_.Of({id, worker.incarnation});
    view.clocks[worker.name] = progress != nullptr ? progress->clock() : worker.first_clock.value();
  }
  return view;
}

uint32_t Controller::BatchSizeFor(WorkerId worker) const {
  // Not to go over all workers for each range that is handed out.
  if (config_.job.training().batch() != job::Training::BALANCE) {
    const auto origin = origins_.find(worker);
    return BatchSizeOf(config_.job, origin != origins_.end() ? origin->second.group : 0);
  }
  std::vector<WorkerId> live;
  for (const auto& [id, member] : membership_.workers()) {
    if (member.state == WorkerState::kLive) live.push_back(id);
  }
  return batch_sizes_.For(worker, live);
}

bool Controller::Swift(WorkerId worker) const {
  const double own = batch_sizes_.SamplesPerSecond(worker);
  if (own == 0) return true;
  double fastest = 0;
  for (const auto& [id, member] : membership_.workers()) {
    const bool asks = member.state == WorkerState::kLive || member.state == WorkerState::kStandby;
    if (asks) fastest = std::max(fastest, batch_sizes_.SamplesPerSecond(id));
  }
  return own * kMuchFaster >= fastest;
}

void Controller::SaveMetrics(state::Scheduler& state) const {
  state.mutable_server_metrics()->insert(server_metrics_.begin(), server_metrics_.end());
  for (const auto& [id, origin] : origins_) (*state.mutable_worker_metrics())[id.value()] = origin.metrics;
}

void Controller::RestoreMetrics(const state::Scheduler& state) {
  server_metrics_.insert(state.server_metrics().begin(), state.server_metrics().end());
  for (const auto& [id, address] : state.worker_metrics()) {
    if (const auto origin = origins_.find(WorkerId(id)); origin != origins_.end()) origin->second.metrics = address;
  }
}

}  // namespace slackline::scheduler
