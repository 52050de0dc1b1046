#include "tests/world/scheduler.h"

#include <algorithm>
#include <utility>

#include "tests/world/server.h"

namespace slackline::world {
namespace {

// As scheduler/service/server_links.cc has them.
constexpr absl::Duration kLinkBackOffMin = absl::Milliseconds(20);
constexpr absl::Duration kLinkBackOffMax = absl::Milliseconds(500);
// Else nothing is saved at a tick: the disk was busy.
constexpr double kSaves = 0.7;

scheduler::Controller::Config ConfigOf(const Scene& scene) {
  scheduler::Controller::Config config;
  config.job = scene.job;
  config.fingerprint = kFingerprint;
  config.id = kJob;
  config.run_folder = "/run";
  if (scene.job.durability().mode() == job::Durability::SNAPSHOT) config.snapshot_folder = "/run/snapshots";
  config.keeps_state = true;
  config.timeouts = scene.timeouts;
  return config;
}

absl::Time Wall(const Scene& scene) {
  return absl::FromUnixSeconds(1'700'000'000) + (scene.events.Now() - absl::UnixEpoch());
}

ServerProcess& ServerAt(Host& host) { return static_cast<ServerProcess&>(host); }

}  // namespace

SchedulerProcess::SchedulerProcess(Scene& scene, std::string its_address)
    : scene_(scene), controller_(ConfigOf(scene), scene.events.time(), *this) {
  life = scene.events.Begin();
  name = "scheduler";
  address = std::move(its_address);
  scene_.network.Listen(*this);
  if (scene_.saved) {
    if (absl::Status restored = controller_.Restore(*scene_.saved, Wall(scene_)); !restored.ok()) {
      scene_.violated(
          absl::StrCat("the scheduler does not go on from what it saved: ", std::string(restored.message())));
    }
    // The scheduler saves at once, like scheduler/main.cc: its successor must not give the same numbers again.
    scene_.saved = controller_.Save(Wall(scene_));
  }
  Tick();
}

// --- Requests ---------------------------------------------------------------------------------------------------

absl::StatusOr<wire::RegisterServerReply> SchedulerProcess::RegisterServer(const wire::RegisterServerRequest& request) {
  return controller_.RegisterServer(request);
}

absl::StatusOr<wire::RegisterWorkerReply> SchedulerProcess::RegisterWorker(const wire::RegisterWorkerRequest& request) {
  return controller_.RegisterWorker(request);
}

absl::StatusOr<wire::HeartbeatReply> SchedulerProcess::Heartbeat(const wire::HeartbeatRequest& request) {
  return controller_.Heartbeat(request);
}

absl::StatusOr<wire::GetShardMapReply> SchedulerProcess::GetShardMap(const wire::GetShardMapRequest& request) {
  return controller_.GetShardMap(request);
}

absl::StatusOr<wire::NextTaskReply> SchedulerProcess::NextTask(const wire::NextTaskRequest& request) {
  absl::StatusOr<wire::NextTaskReply> reply = controller_.NextTask(request);
  const Sender holder{WorkerId(request.worker()), Incarnation(request.incarnation())};
  if (!reply.ok()) return reply;
  if (request.range_done() != 0) scene_.ledger.RangeDone(holder, request.range_done());
  if (!reply->has_range()) return reply;
  std::vector<LifeId> lives;
  for (const Incarnation server : servers()) lives.push_back(life_of(server));
  scene_.ledger.Handed(holder, reply->range(), life, lives);
  return reply;
}

absl::StatusOr<wire::EvaluationReply> SchedulerProcess::ReportEvaluation(const wire::EvaluationReport& request) {
  if (absl::Status status = controller_.ReportEvaluation(request); !status.ok()) return status;
  return wire::EvaluationReply();
}

absl::StatusOr<wire::ReportExitReply> SchedulerProcess::ReportExit(const wire::ReportExitRequest& request) {
  if (absl::Status status = controller_.ReportExit(request); !status.ok()) return status;
  return wire::ReportExitReply();
}

absl::StatusOr<wire::ChangeServersReply> SchedulerProcess::ChangeServers(const wire::ChangeServersRequest& request) {
  return controller_.ChangeServers(request);
}

// --- Servers ----------------------------------------------------------------------------------------------------

std::vector<Incarnation> SchedulerProcess::servers() const {
  std::vector<Incarnation> servers;
  for (const auto& [id, link] : links_) servers.push_back(link->server.incarnation);
  return servers;
}

SchedulerProcess::LinkPtr SchedulerProcess::Find(scheduler::ServerRef server) const {
  const auto found = links_.find({server.server, server.incarnation});
  return found != links_.end() ? found->second : nullptr;
}

void SchedulerProcess::Connect(scheduler::ServerRef server, const std::string& /*name*/, const std::string& at,
                               scheduler::ServerObserver& observer) {
  if (const LinkPtr before = Find(server); before != nullptr) before->closed = true;
  auto link = std::make_shared<Link>();
  link->server = server;
  link->address = at;
  link->observer = &observer;
  link->back_off = kLinkBackOffMin;
  links_[{server.server, server.incarnation}] = std::move(link);
}

void SchedulerProcess::Disconnect(scheduler::ServerRef server) {
  const LinkPtr link = Find(server);
  if (link == nullptr) return;
  link->closed = true;
  links_.erase({server.server, server.incarnation});
}

void SchedulerProcess::Install(scheduler::ServerRef server, const wire::InstallShardsRequest& request) {
  const LinkPtr link = Find(server);
  if (link == nullptr) return;
  link->install = request;
  // A set is of one shard map.
  if (link->members && link->members->generation() != request.generation()) link->members.reset();
  Kick(link);
}

void SchedulerProcess::TakeShards(scheduler::ServerRef server, const wire::TakeShardsRequest& request) {
  const LinkPtr link = Find(server);
  if (link == nullptr) return;
  link->take = request;
  Kick(link);
}

void SchedulerProcess::SetMembers(scheduler::ServerRef server, const wire::SetMembersRequest& request) {
  const LinkPtr link = Find(server);
  if (link == nullptr) return;
  const auto order = [](const wire::SetMembersRequest& members) {
    return std::pair(members.generation(), members.epoch());
  };
  if (!link->members || order(*link->members) < order(request)) link->members = request;
  Kick(link);
}

void SchedulerProcess::Stop(scheduler::ServerRef server, const wire::StopRequest& request) {
  const LinkPtr link = Find(server);
  if (link == nullptr) return;
  link->stop = request;
  Kick(link);
}

void SchedulerProcess::Kick(const LinkPtr& link) {
  scene_.events.After(absl::ZeroDuration(), life, [this, link] { TryNext(link); });
}

void SchedulerProcess::TryNext(const LinkPtr& link) {
  if (link->busy || link->closed) return;
  const absl::Duration timeout = std::max(scene_.timeouts.server_dead(), absl::Seconds(1));
  if (link->stop) {
    link->busy = true;
    scene_.network.Call<wire::StopReply>(
        *this, link->address, timeout,
        [request = *link->stop](Host& server) -> absl::StatusOr<wire::StopReply> {
          ServerAt(server).Stop(request);
          return wire::StopReply();
        },
        [this, link](const auto& reply) {
          Tried(link, reply.status(), [link] {
            link->closed = true;
            link->observer->Stopped(link->server);
          });
        });
  } else if (link->take) {
    link->busy = true;
    scene_.network.Call<wire::TakeShardsReply>(
        *this, link->address, timeout,
        [request = *link->take](Host& server) -> absl::StatusOr<wire::TakeShardsReply> {
          if (absl::Status status = ServerAt(server).Take(request); !status.ok()) return status;
          return wire::TakeShardsReply();
        },
        [this, link, told = *link->take](const auto& reply) {
          // A refusal is an answer, too.
          const bool later = !reply.ok() && rpc::IsRetryable(reply.status());
          Tried(link, later ? reply.status() : absl::OkStatus(), [link, &told, &reply] {
            if (link->take && link->take->move() == told.move()) link->take.reset();
            if (!reply.ok()) link->observer->TakeRefused(link->server, told, reply.status());
          });
        });
  } else if (link->install) {
    link->busy = true;
    scene_.network.Call<wire::InstallShardsReply>(
        *this, link->address, timeout,
        [request = *link->install](Host& server) -> absl::StatusOr<wire::InstallShardsReply> {
          if (absl::Status status = ServerAt(server).Install(request); !status.ok()) return status;
          return ServerAt(server).Restored();
        },
        [this, link, told = link->install->SerializeAsString()](const auto& reply) {
          Tried(link, reply.status(), [link, &told, &reply] {
            link->installed = true;
            // It may have been told meanwhile to be something else.
            if (link->install && link->install->SerializeAsString() == told) link->install.reset();
            link->observer->Installed(link->server, *reply);
          });
        });
  } else if (link->members && link->installed) {
    link->busy = true;
    scene_.network.Call<wire::SetMembersReply>(
        *this, link->address, timeout,
        [request = *link->members](Host& server) { return ServerAt(server).SetMembers(request); },
        [this, link, told = link->members->generation()](const absl::StatusOr<wire::SetMembersReply>& reply) {
          Tried(link, reply.status(), [link, &reply, told] {
            const bool same =
                link->members && link->members->epoch() == reply->epoch() && link->members->generation() == told;
            if (same) link->members.reset();
            link->observer->MembersInstalled(link->server, *reply);
          });
        });
  }
}

void SchedulerProcess::Tried(const LinkPtr& link, const absl::Status& status, const std::function<void()>& answered) {
  link->busy = false;
  if (link->closed) return;
  if (status.ok()) {
    link->back_off = kLinkBackOffMin;
    answered();
    return Kick(link);
  }
  if (!rpc::IsRetryable(status)) {
    link->closed = true;
    return link->observer->Refused(link->server, status);
  }
  scene_.events.After(link->back_off, life, [this, link] { TryNext(link); });
  link->back_off = std::min(2 * link->back_off, kLinkBackOffMax);
}

// --- The loop ---------------------------------------------------------------------------------------------------

void SchedulerProcess::Tick() {
  if (ended_) return;
  controller_.Tick();
  // Before it ends it saves once more.
  if (scene_.random.Chance(kSaves) || !scene_.saved || controller_.finished()) {
    scene_.saved = controller_.Save(Wall(scene_));
    controller_.StateKept(*scene_.saved);
  } else {
    ++scene_.saves_missed;
  }
  Tell();
  const wire::JobState state = controller_.state();
  // What is not saved may be forgotten.
  const bool done = scene_.saved->job_state() == wire::JOB_DONE;
  if (done && !std::exchange(scene_.done, true)) scene_.ledger.JobDone();
  if (state == wire::JOB_FAILED || state == wire::JOB_STOPPED) {
    scene_.failed(controller_.GetStatus().reason());
  }
  if (controller_.finished()) {
    ended_ = true;
    return scene_.ended(*this, absl::OkStatus());
  }
  scene_.events.After(scene_.timeouts.heartbeat / 2, life, [this] { Tick(); });
}

void SchedulerProcess::Tell() {
  for (const std::string& event : controller_.TakeEvents()) scene_.Tell("  ", event);
  controller_.TakeReports();
}

}  // namespace slackline::world
