// Faults of a world. Each kind of fault has a source of chance of its own: a world without one kind has the others at
// the same times.
#include <algorithm>
#include <utility>

#include "tests/world/world.h"

namespace slackline::world {
namespace {

// A seed has each kind with this chance.
constexpr double kDrawn = 0.35;

}  // namespace

void World::PlanFaults() {
  Plan(kBreakStreams, 6, &World::BreakStream);
  Plan(kSlowLinks, 3, &World::SlowDown);
  Plan(kLoseCalls, 2, &World::LoseCalls);
  Plan(kRepeatCalls, 2, &World::RepeatCalls);
  Plan(kPartitions, 2, &World::Separate);
  Plan(kCrashServers, 2, &World::CrashServer);
  Plan(kCrashWorkers, 2, &World::CrashWorker);
  Plan(kCrashScheduler, 2, &World::CrashScheduler);
  Plan(kPause, 2, &World::PauseOne);
  Plan(kDiskFails, 2, &World::FailDisk);
  Plan(kTornSnapshots, 1, &World::CrashAndTear);
  Plan(kComeAndGo, 2, &World::ComeAndGo);
  Plan(kChangeServers, 3, &World::ChangeServers);
}

void World::Plan(Fault fault, uint64_t most, void (World::*what)(Random& random)) {
  auto random = std::make_shared<Random>(options_.seed, 100 + fault);
  const bool drawn = random->Chance(kDrawn);
  const uint64_t times = random->Between(1, most);
  // Also where an earlier end leaves some out, the others stay where they are.
  for (uint64_t i = 0; i < times; ++i) {
    const absl::Duration wait = random->Between(absl::ZeroDuration(), absl::Seconds(8));
    const auto own = std::make_shared<Random>(options_.seed, 1'000'000 + 1000 * fault + i);
    if (!drawn || (options_.faults & fault) == 0 || wait > options_.faults_for) continue;
    drawn_ |= fault;
    events_.After(wait, 0, [this, what, own] {
      if (scene_.done) return;
      WatchPairs();
      failover_.reset();
      (this->*what)(*own);
    });
  }
}

Host* World::Anybody(Random& random) {
  std::vector<Host*> all;
  if (scheduler_ != nullptr) all.push_back(scheduler_.get());
  for (const auto& server : servers_) all.push_back(server.get());
  for (const auto& worker : workers_) all.push_back(worker.get());
  return all.empty() ? nullptr : all[random.Below(all.size())];
}

ServerProcess* World::AnyServer(Random& random) {
  return servers_.empty() ? nullptr : servers_[random.Below(servers_.size())].get();
}

// --- The network ------------------------------------------------------------------------------------------------

void World::BreakStream(Random& random) {
  scene_.Tell("FAULT a stream breaks");
  const auto [one, other] = network_.BreakOne(random.Below(1000));
  const auto life = [](LifeId id) { return [id](const auto& server) { return server->life == id; }; };
  const auto a = std::find_if(servers_.begin(), servers_.end(), life(one));
  const auto b = std::find_if(servers_.begin(), servers_.end(), life(other));
  if (a != servers_.end() && b != servers_.end()) Blow((*a)->server());
}

void World::SlowDown(Random& random) {
  const Host* const host = Anybody(random);
  if (host == nullptr) return;
  scene_.Tell("FAULT slow links of ", host->name);
  if (const ServerProcess* const server = ServerOf(host); server != nullptr) Blow(server->server());
  if (host == scheduler_.get()) BlowAll();
  network_.Slow(host->name, Until(random.Between(absl::Milliseconds(300), absl::Seconds(3))));
}

void World::LoseCalls(Random& random) {
  scene_.Tell("FAULT calls are lost");
  BlowAll();
  // A compiler may evaluate arguments in any order, so each draw has a statement: then a seed is the same world
  // everywhere.
  const absl::Time until = Until(random.Between(absl::Milliseconds(500), absl::Seconds(3)));
  network_.LoseCalls(0.1 * static_cast<double>(random.Between(1, 4)), until);
}

void World::RepeatCalls(Random& random) {
  scene_.Tell("FAULT calls are repeated");
  const absl::Time until = Until(random.Between(absl::Milliseconds(500), absl::Seconds(3)));
  network_.RepeatCalls(0.1 * static_cast<double>(random.Between(1, 3)), until);
}

void World::Separate(Random& random) {
  const Host* const a = Anybody(random);
  const Host* const b = Anybody(random);
  if (a == nullptr || a == b) return;
  const absl::Time until = Until(random.Between(absl::Milliseconds(200), absl::Seconds(5)));
  scene_.Tell("FAULT partition between ", a->name, " and ", b->name, " for ",
              absl::FormatDuration(until - events_.Now()));
  BlowBetween(a, b);
  network_.Partition(a->name, b->name, until);
}

// --- Deaths -----------------------------------------------------------------------------------------------------

void World::ReportExit(const std::string& name, wire::MemberRole role) {
  wire::ReportExitRequest request;
  request.set_job(kJob.value());
  request.set_role(role);
  request.set_name(name);
  request.set_reason("killed");
  network_.Call<wire::ReportExitReply>(
      supervisor_, scheduler_address_, absl::Seconds(1),
      [request](Host& host) { return SchedulerAt(host).ReportExit(request); }, [](const auto&) {});
}

void World::Crash(ServerProcess& server, bool tear, Random& random) {
  ++outcome_.counts.server_crashes;
  scene_.Tell("FAULT ", server.name, " is killed", tear ? ", and its disk loses something" : "");
  const std::string name = server.name, address = server.address;
  const std::vector<std::string> folders = server.folders();
  ExpectFailover(server);
  Blow(server.server());
  server.DieWriting(random.Below(4));
  Bury(server, random.Chance(0.2));
  for (const std::string& folder : folders) {
    if (tear && random.Chance(0.7)) outcome_.counts.torn += disk_.Tear(folder, random.Below(1000));
  }
  if (Present(name)) return;  // it had a successor already
  if (random.Chance(0.5)) ReportExit(name, wire::MEMBER_ROLE_SERVER);
  RestartServer(name, address);
}

void World::CrashServer(Random& random) {
  if (ServerProcess* const server = AnyServer(random); server != nullptr) Crash(*server, false, random);
}

void World::CrashAndTear(Random& random) {
  if (ServerProcess* const server = AnyServer(random); server != nullptr) Crash(*server, true, random);
}

void World::CrashWorker(Random& random) {
  if (workers_.empty()) return;
  WorkerProcess& worker = *workers_[random.Below(workers_.size())];
  ++outcome_.counts.worker_crashes;
  scene_.Tell("FAULT ", worker.name, " is killed");
  const std::string name = worker.name;
  Bury(worker, random.Chance(0.2));
  if (random.Chance(0.5)) ReportExit(name, wire::MEMBER_ROLE_WORKER);
  RestartWorker(name);
}

void World::CrashScheduler(Random& random) {
  // One that has forgotten that training had begun is out of the job's promises: docs/adr/0022.
  if (scheduler_ == nullptr || !Ready()) return;
  ++outcome_.counts.scheduler_crashes;
  scene_.Tell("FAULT the scheduler is killed");
  Bury(*scheduler_, random.Chance(0.2));
  events_.After(random.Between(absl::Milliseconds(100), absl::Seconds(3)), 0, [this] { StartScheduler(); });
}

// --- The rest ---------------------------------------------------------------------------------------------------

void World::PauseOne(Random& random) {
  Host* const host = Anybody(random);
  if (host == nullptr || events_.Stopped(host->life)) return;
  ++outcome_.counts.pauses;
  const absl::Time until = Until(random.Between(absl::Milliseconds(100), absl::Seconds(8)));
  scene_.Tell("FAULT ", host->name, " is stopped for ", absl::FormatDuration(until - events_.Now()));
  const ServerProcess* const server = ServerOf(host);
  const bool long_enough = until > events_.Now() + 2 * kFailover * scene_.timeouts.heartbeat;
  if (server != nullptr && long_enough) ExpectFailover(*server);
  events_.Stop(host->life);
  events_.At(until, 0, [this, life = host->life, name = host->name] {
    if (!events_.Alive(life)) return;
    scene_.Tell(name, " goes on");
    events_.GoOn(life);
  });
  if (server == nullptr) return;
  Blow(server->server());
  // Of those who have backups some are let alone, and go on when others have their places.
  if (replicated_ && random.Chance(0.4)) return;
  // When the scheduler has given it up: it is killed and replaced, or replaced by another machine's.
  const bool soon = replicated_ && random.Chance(0.5);
  const absl::Duration dead =
      (soon ? scene_.timeouts.server_dead() : scene_.timeouts.worker_dead()) + 2 * scene_.timeouts.heartbeat;
  events_.After(dead, 0, [this, life = host->life, name = host->name, kill = random.Chance(0.5)] {
    if (!events_.Alive(life) || !events_.Stopped(life) || scene_.done) return;
    if (!kill) return StartServer(name, NewAddress());
    for (const auto& stopped : servers_) {
      if (stopped->life != life) continue;
      scene_.Tell(name, " is killed and replaced");
      Bury(*stopped, false);
      break;
    }
    StartServer(name, NewAddress());
  });
}

void World::FailDisk(Random& random) {
  const ServerProcess* const server = AnyServer(random);
  if (server == nullptr) return;
  scene_.Tell("FAULT the disk of ", server->name, " is full");
  disk_.Fail(server->life, true);
  events_.At(Until(random.Between(absl::Milliseconds(300), absl::Seconds(4))), 0,
             [this, life = server->life] { disk_.Fail(life, false); });
}

void World::ComeAndGo(Random& random) {
  ++outcome_.counts.comings;
  // A job that has not begun waits for all of its workers.
  if (random.Chance(0.5) || workers_.size() < 2 || !Ready()) {
    scene_.Tell("one more worker comes");
    return StartWorker(absl::StrCat("w-", last_pid_ + 1, "-late"));
  }
  WorkerProcess& worker = *workers_[random.Below(workers_.size())];
  scene_.Tell(worker.name, " is told to stop");
  if (!events_.Stopped(worker.life)) worker.Leave("told to stop");
}

// Shards move then, if the scheduler allows it.
void World::ChangeServers(Random& random) {
  const bool add = random.Chance(0.5);
  const ServerProcess* const leaves = AnyServer(random);
  wire::ChangeServersRequest request;
  if (add) {
    request.set_add(1);
  } else if (leaves != nullptr) {
    request.add_drain(leaves->name);
  }
  scene_.Tell(add ? "one more server is wanted"
                  : absl::StrCat(leaves == nullptr ? "nobody" : leaves->name, " is to be drained"));
  network_.Call<wire::ChangeServersReply>(
      supervisor_, scheduler_address_, absl::Seconds(1),
      [request](Host& host) { return SchedulerAt(host).ChangeServers(request); },
      [this, request](const absl::StatusOr<wire::ChangeServersReply>& reply) {
        if (!reply.ok() || scene_.done) return;
        for (const std::string& name : request.drain()) {
          ++outcome_.counts.servers_drained;
          drained_.insert(name);
        }
        if (request.add() == 0) return;
        ++outcome_.counts.servers_added;
        StartServer(absl::StrCat("ps-", ++servers_added_, "-added"), NewAddress());
      });
}

}  // namespace slackline::world
