#include "simulator/cluster.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/protocol_version.h"
#include "common/job/job_file.h"
#include "ps/shard/shard_settings.h"
#include "worker/scheduler_link/scheduler_wire.h"
#include "worker/settings/local_job_config.h"

namespace slackline::simulator {
namespace {

// Training waits for those workers that are there at the beginning.
job::Job ControllersJob(const job::Job& job) {
  const std::vector<WorkerPlan> plans = PlanWorkers(job);
  const auto first =
      std::count_if(plans.begin(), plans.end(), [](const WorkerPlan& plan) { return plan.joins == absl::UnixEpoch(); });
  job::Job copy = job;
  copy.mutable_cluster()->set_workers(static_cast<uint32_t>(first));
  return copy;
}

ComputeCost CostOf(const job::Simulation& simulation) {
  // Forward without backward.
  constexpr double kForwardPart = 1.0 / 3;
  const double stated = simulation.evaluation_us_per_sample();
  return {absl::Microseconds(simulation.compute_us_per_sample()), absl::Microseconds(simulation.compute_us_per_step()),
          absl::Microseconds(stated >= 0 ? stated : simulation.compute_us_per_sample() * kForwardPart)};
}

}  // namespace

SimulatedCluster::SimulatedCluster(const Config& config, Computation& computation, OnReport on_report)
    : config_(config),
      on_report_(std::move(on_report)),
      controller_({.job = ControllersJob(config.job),
                   .fingerprint = Fingerprint(config.job),
                   .id = JobId(1),
                   .run_folder = config.run_folder,
                   .timeouts = config.timeouts},
                  queue_, *this),
      world_{config.job,
             config.timeouts,
             CostOf(config.job.simulation()),
             worker::MakeLocalConfig(config.job.local()),
             queue_,
             network_,
             controller_,
             computation} {
  world_.scheduler_end = network_.Add({});
  for (uint32_t i = 0; i < config.job.cluster().servers(); ++i) {
    servers_.push_back(std::make_unique<Server>(world_, absl::StrCat("ps-", i + 1)));
  }
  links_.resize(servers_.size());
  const std::vector<WorkerPlan> plans = PlanWorkers(config.job);
  for (uint32_t i = 0; i < plans.size(); ++i) {
    workers_.push_back(std::make_unique<Worker>(world_, plans[i], i + 1, servers_));
  }
}

SimulatedCluster::~SimulatedCluster() = default;

void SimulatedCluster::Run(const std::function<void()>& between) {
  RegisterServers();
  for (const std::unique_ptr<Worker>& worker : workers_) worker->Plan();
  TickScheduler();
  TickServers();
  const job::Simulation& simulation = config_.job.simulation();
  // Nobody can measure what is not computed.
  bool observed = simulation.evaluate_every_s() <= 0 || world_.computation.initial_weights().empty();
  const absl::Time last = absl::UnixEpoch() + absl::Seconds(simulation.time_max_s());
  while (!controller_.finished() && queue_.Next()) {
    if (!observed && controller_.state() == wire::JOB_TRAINING) {
      observed = true;
      queue_.After(absl::Seconds(simulation.evaluate_every_s()), [this] { Observe(); });
    }
    if (queue_.Now() > last) {
      controller_.StopJob(
          absl::StrCat("it was not done after ", simulation.time_max_s(), " s of virtual time (simulation.time_max_s)"),
          /*failed=*/true);
    }
    between();
  }
  on_report_(controller_, queue_.Now());
}

Costs SimulatedCluster::costs() const {
  Costs costs{queue_.happened(), network_.messages(), network_.bytes(), 0, world_.scheduler_calls};
  for (const std::unique_ptr<Server>& server : servers_) costs.bytes_to_servers += server->bytes_in();
  return costs;
}

// --- Servers ----------------------------------------------------------------------------------------------------

void SimulatedCluster::RegisterServers() {
  for (size_t i = 0; i < servers_.size(); ++i) {
    wire::RegisterServerRequest request;
    request.set_name(servers_[i]->name());
    request.set_address(absl::StrCat("simulated:", i + 1));
    request.set_job_fingerprint(Fingerprint(config_.job));
    SetProtocol(request);
    ++world_.scheduler_calls;
    const auto reply = controller_.RegisterServer(request);
    if (!reply.ok()) return world_.Fail(servers_[i]->name(), reply.status());
    Beat(i);
  }
}

void SimulatedCluster::Beat(size_t server) {
  wire::HeartbeatRequest request;
  request.set_job(1);
  request.set_role(wire::MEMBER_ROLE_SERVER);
  request.set_member(links_[server].ref.server.value());
  request.set_incarnation(links_[server].ref.incarnation.value());
  request.mutable_server()->set_seeded(servers_[server]->seeded());
  ++world_.scheduler_calls;
  if (!controller_.Heartbeat(request).ok()) return;
  queue_.After(config_.timeouts.heartbeat, [this, server] { Beat(server); });
}

void SimulatedCluster::Connect(scheduler::ServerRef server, const std::string&, const std::string&,
                               scheduler::ServerObserver&) {
  links_[IndexOf(server)].ref = server;
}

void SimulatedCluster::Install(scheduler::ServerRef server, const wire::InstallShardsRequest& request) {
  queue_.After(absl::ZeroDuration(), [this, server, request] {
    servers_[IndexOf(server)]->Install(request);
    controller_.Installed(server, {});
    SendMembers(IndexOf(server));
  });
}

void SimulatedCluster::SetMembers(scheduler::ServerRef server, const wire::SetMembersRequest& request) {
  Link& link = links_[IndexOf(server)];
  link.members = std::make_unique<wire::SetMembersRequest>(request);
  if (!link.in_flight) SendMembers(IndexOf(server));
}

// One call at a time; what was wished meanwhile goes out as a whole when it is answered.
void SimulatedCluster::SendMembers(size_t server) {
  Link& link = links_[server];
  link.in_flight = servers_[server]->installed() && link.members != nullptr;
  if (!link.in_flight) return;
  const absl::Duration latency = absl::Microseconds(config_.job.simulation().latency_us());
  queue_.After(latency, [this, server, latency] {
    const std::unique_ptr<wire::SetMembersRequest> request = std::move(links_[server].members);
    wire::SetMembersReply reply;
    reply.set_epoch(request->epoch());
    reply.set_clock_min_largest(servers_[server]->SetMembers(*request).value());
    queue_.After(latency, [this, server, reply] {
      links_[server].in_flight = false;
      controller_.MembersInstalled(links_[server].ref, reply);
      if (!links_[server].in_flight) SendMembers(server);
    });
  });
}

void SimulatedCluster::Stop(scheduler::ServerRef server, const wire::StopRequest&) {
  queue_.After(absl::ZeroDuration(), [this, server] { controller_.Stopped(server); });
}

// --- Time -------------------------------------------------------------------------------------------------------

void SimulatedCluster::TickScheduler() {
  controller_.Tick();
  const wire::JobState state = controller_.state();
  // Somebody asks how it ended, so that it ends at once.
  if (state != wire::JOB_STARTING && state != wire::JOB_TRAINING) (void)controller_.GetStatus();
  on_report_(controller_, queue_.Now());
  const absl::Duration report_every = absl::Milliseconds(config_.job.output().report_every_ms());
  queue_.After(std::min(config_.timeouts.heartbeat / 2, report_every), [this] { TickScheduler(); });
}

void SimulatedCluster::TickServers() {
  for (const std::unique_ptr<Server>& server : servers_) server->Tick();
  queue_.After(ps::TickEvery(config_.job, config_.timeouts), [this] { TickServers(); });
}

void SimulatedCluster::Observe() {
  wire::GetShardMapRequest request;
  request.set_job(1);
  const absl::StatusOr<wire::GetShardMapReply> map = controller_.GetShardMap(request);
  if (!map.ok() || controller_.state() != wire::JOB_TRAINING) return;
  queue_.After(absl::Seconds(config_.job.simulation().evaluate_every_s()), [this] { Observe(); });
  Weights weights;
  uint64_t applied = std::numeric_limits<uint64_t>::max();
  for (const wire::ShardSpec& spec : map->shards()) {
    const Server& server = *servers_[spec.server() - 1];
    if (!server.seeded()) return;
    weights.push_back(server.Evaluated(ShardId(spec.shard())));
    applied = std::min(applied, server.samples_applied(ShardId(spec.shard())));
  }
  if (observed_ == applied) return;
  observed_ = applied;
  const absl::StatusOr<worker::EvaluationResult> result = world_.computation.Evaluate(weights, {});
  if (!result.ok()) return world_.Fail("the simulation", result.status());
  controller_.NoteObserved(worker::ToWire(*result), applied);
}

}  // namespace slackline::simulator
