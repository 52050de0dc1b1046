#include "tests/world/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/job_file.h"

namespace slackline::world {
namespace {

constexpr absl::Duration kT = absl::Milliseconds(200);
constexpr uint64_t kEventsMax = 500'000;
constexpr size_t kTraceMax = 120;
constexpr double kEarly = 0.1;
constexpr double kBacked = 0.4;
constexpr uint64_t kSoftsync = 3;  // of the modes below

constexpr const char* kFaultNames[kFaults] = {
    "broken streams", "slow links",         "lost calls",         "repeated calls",
    "partitions",     "crashes of servers", "crashes of workers", "crashes of the scheduler",
    "pauses",         "failing disks",      "torn snapshots",     "coming and going",
    "other servers"};

// Softsync has no backups.
bool Replicated(const Options& options) {
  if (options.keeps == Keeps::kDrawn) return options.seed % 5 != kSoftsync && Random(options.seed, 7).Chance(kBacked);
  return options.keeps == Keeps::kBackups;
}

job::Job JobOf(const Options& options, Random& random) {
  const uint64_t seed = options.seed;
  constexpr job::Consistency::Mode kModes[] = {job::Consistency::SSP, job::Consistency::BSP, job::Consistency::ASYNC,
                                               job::Consistency::SOFTSYNC, job::Consistency::QUORUM};
  constexpr double kQuorums[] = {0.5, 0.75, 1};
  job::Job job;
  job.set_name("world");
  job.mutable_optimizer()->set_lr(1);
  job::Consistency& consistency = *job.mutable_consistency();
  const bool replicated = Replicated(options);
  consistency.set_mode(kModes[replicated && seed % 5 == kSoftsync ? 0 : seed % 5]);
  consistency.set_weighting(job::Consistency::UNIFORM);
  consistency.set_staleness_max(static_cast<uint32_t>(random.Below(4)));
  consistency.set_softsync_n(static_cast<uint32_t>(random.Between(1, 2)));
  consistency.set_quorum(kQuorums[random.Below(3)]);
  consistency.set_quorum_deadline_ms(random.Chance(0.5) ? 0 : 400);
  const bool quorum = consistency.mode() == job::Consistency::QUORUM;
  const bool late = quorum && !replicated && Random(seed, 8).Chance(0.5);
  if (late) consistency.set_late(job::Consistency::COUNT);
  if (quorum && !late && Random(seed, 9).Chance(0.5)) consistency.set_grace(job::QuorumGrace::ADAPTIVE);
  const bool many = consistency.mode() == job::Consistency::SOFTSYNC || consistency.mode() == job::Consistency::QUORUM;
  job.mutable_cluster()->set_servers(static_cast<uint32_t>(random.Between(1, 2)));
  job.mutable_cluster()->set_shards_per_server(static_cast<uint32_t>(random.Between(1, 2)));
  job.mutable_cluster()->set_workers(static_cast<uint32_t>(random.Between(2, many ? 4 : 3)));
  job.mutable_wire()->set_window(random.Chance(0.3) ? 2 : 1);
  job.mutable_wire()->set_chunk_bytes(512);
  job.mutable_wire()->set_same_host(job::Wire::TCP);
  job.mutable_training()->set_batch_size(4);
  job.mutable_training()->set_evaluate_every_epochs(0);
  job.mutable_training()->set_epochs(static_cast<uint32_t>(random.Between(1, 2)));
  const uint64_t pushes = random.Between(60, 110) / job.training().epochs();
  job.mutable_data()->set_train_images_max(static_cast<uint32_t>(4 * pushes - random.Below(4)));
  job.mutable_durability()->set_snapshot_every_s(0.3 + static_cast<double>(random.Below(10)) / 10);
  if (replicated) job.mutable_durability()->set_mode(job::Durability::REPLICATED);
  job.mutable_durability()->set_server_return_s(60);
  job.mutable_durability()->set_scheduler_return_s(30);
  job.mutable_timeouts()->set_heartbeat_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(kT)));
  return Resolve(job);
}

Timeouts TimeoutsOf() {
  Timeouts timeouts;
  timeouts.heartbeat = kT;
  timeouts.stall = absl::Seconds(30);
  timeouts.startup = absl::Seconds(60);
  return timeouts;
}

}  // namespace

std::string NamesOf(uint32_t faults) {
  std::vector<std::string> names;
  for (int i = 0; i < kFaults; ++i) {
    if (faults & (1u << i)) names.emplace_back(kFaultNames[i]);
  }
  return names.empty() ? "no faults" : absl::StrJoin(names, ", ");
}

bool tells_at_once = false;

Outcome Play(const Options& options) {
  tells_at_once = options.bugs.tell_at_once;
  return World(options).Run();
}

World::World(const Options& options)
    : options_(options),
      setup_(options.seed, 2),
      faults_(options.seed, 3),
      lives_(options.seed, 4),
      network_(events_, outcome_.counts, options.seed),
      disk_(options.bugs.no_checksums),
      metrics_(metrics_registry_),
      job_(JobOf(options, setup_)),
      ledger_(job_, job_.cluster().servers() * job_.cluster().shards_per_server(), outcome_.counts,
              [this](const std::string& what) { Violate(what); }),
      scene_{.options = options_,
             .job = job_,
             .timeouts = TimeoutsOf(),
             .counts = outcome_.counts,
             .events = events_,
             .network = network_,
             .disk = disk_,
             .ledger = ledger_,
             .metrics = metrics_,
             .random = Random(options_.seed, 5),
             .scheduler = [this] { return scheduler_address_; },
             .parting = [this](Host& host) { Part(host); },
             .ended = [this](Host& host, const absl::Status& status) { Ended(host, status); },
             .violated = [this](const std::string& what) { Violate(what); },
             .failed = [this](const std::string& reason) { Failed(reason); },
             .live = [this](const Sender& sender) { return Live(sender); },
             .tell = [this](const std::string& line) { Note(line); },
             .calm = [this] { return events_.Now() > faults_end_ + kCalmAfter; }},
      replicated_(Replicated(options)),
      early_(Random(options.seed, 6).Chance(kEarly)) {
  supervisor_.name = "supervisor";
}

World::~World() = default;

void World::Note(const std::string& line) {
  trace_.push_back(absl::StrFormat("%9.3f s  %s", absl::ToDoubleSeconds(events_.Now() - absl::UnixEpoch()), line));
  if (trace_.size() > kTraceMax) trace_.pop_front();
}

bool World::Live(const Sender& sender) {
  if (scheduler_ == nullptr) return false;
  const wire::GetStatusReply status = scheduler_->Status();
  return std::any_of(status.members().begin(), status.members().end(), [&](const wire::MemberStatus& member) {
    return member.role() == wire::MEMBER_ROLE_WORKER && member.member() == sender.worker.value() &&
           member.incarnation() == sender.incarnation.value() && member.state() == "live";
  });
}

bool World::MayFail(const std::string& reason) {
  for (const char* const allowed :
       {"its shards were not on disk yet", "training had not begun yet", "there is no snapshot to continue from",
        "the shard starts from initial weights", "could not start within"}) {
    if (early_ && absl::StrContains(reason, allowed)) return ++outcome_.counts.failed_early > 0;
  }
  return replicated_ && MayFailTwice(reason);
}

void World::Failed(const std::string& reason) {
  failed_ = failed_ || MayFail(reason);
  if (!failed_) return Violate(absl::StrCat("the job has failed: ", reason));
  scene_.Tell("the job may fail of that: ", reason);
}

void World::Violate(const std::string& what) {
  if (!outcome_.violation.empty()) return;
  outcome_.violation = absl::StrFormat("seed %d, %.3f s: %s", options_.seed,
                                       absl::ToDoubleSeconds(events_.Now() - absl::UnixEpoch()), what);
  if (options_.trace) Note(absl::StrCat("VIOLATED: ", what));
}

Outcome World::Run() {
  const job::Consistency& consistency = job_.consistency();
  outcome_.description = absl::StrFormat(
      "%d servers%s x %d shards, %d workers, window %d, %s (bound %d, softsync_n %d, quorum %g, deadline %d ms)",
      job_.cluster().servers(), replicated_ ? " and their backups" : "", job_.cluster().shards_per_server(),
      job_.cluster().workers(), job_.wire().window(), job::Consistency::Mode_Name(consistency.mode()),
      consistency.staleness_max(), consistency.softsync_n(), consistency.quorum(), consistency.quorum_deadline_ms());
  Begin();
  while (outcome_.violation.empty() && !failed_ && events_.Next()) {
    if (scheduler_ == nullptr && scene_.done && servers_.empty() && workers_.empty()) break;
    // Also where time does not pass.
    if (events_.played() > kEventsMax) Violate("there is no end of events");
  }
  outcome_.counts.worlds = 1;
  outcome_.counts.replicated = replicated_;
  outcome_.counts.events = events_.played();
  outcome_.counts.virtual_ms = static_cast<uint64_t>(absl::ToInt64Milliseconds(events_.Now() - absl::UnixEpoch()));
  absl::StrAppend(&outcome_.description, "; ", early_ ? "from the beginning: " : "", NamesOf(drawn_));
  for (const std::string& line : trace_) absl::StrAppend(&outcome_.trace, line, "\n");
  return std::move(outcome_);
}

void World::Begin() {
  moved_ = events_.Now();
  StartScheduler();
  for (uint32_t i = 1; i <= (replicated_ ? 2 : 1) * job_.cluster().servers(); ++i) {
    events_.After(setup_.Between(absl::ZeroDuration(), absl::Milliseconds(400)), 0,
                  [this, i] { StartServer(absl::StrCat("ps-", i), NewAddress()); });
  }
  for (uint32_t i = 1; i <= job_.cluster().workers(); ++i) {
    events_.After(setup_.Between(absl::ZeroDuration(), absl::Milliseconds(400)), 0,
                  [this, i] { StartWorker(absl::StrCat("w-", i)); });
  }
  CheckDeadlines();
}

bool World::Ready() {
  if (scheduler_ == nullptr || !scene_.saved || scene_.saved->job_state() != wire::JOB_TRAINING) return false;
  for (const state::Server& server : scene_.saved->members().servers()) {
    if (replicated_ ? !pairs_[ServerId(server.server())].ever : !server.durable()) return false;
  }
  return true;
}

void World::CheckDeadlines() {
  const absl::Time now = events_.Now();
  const job::Consistency::Mode mode = job_.consistency().mode();
  WatchPairs();
  CheckFailover();
  if (!faulty_ && (early_ || Ready())) {
    faulty_ = true;
    faults_end_ = now + options_.faults_for;
    PlanFaults();
  }
  if (!faulty_ && now > absl::UnixEpoch() + kBegin) Violate("training has not begun");
  if (ledger_.progress() != progress_ || !scene_.calm()) {
    progress_ = ledger_.progress();
    moved_ = now;
  }
  if (scene_.done) {
    if (done_ == absl::InfiniteFuture()) done_ = now;
    // What is drawn for later than the end does not happen.
    if (now > std::max(done_, faults_end_ + kCalmAfter) + kEnd)
      Violate("the job is done, and its processes do not end");
  } else if (now > moved_ + kStuck) {
    Violate("nothing moves on any more");
  } else if (faulty_ && now > faults_end_ + (mode == job::Consistency::QUORUM ? kFinishQuorum : kFinish)) {
    Violate("the job is not done in time");
  }
  events_.After(absl::Milliseconds(100), 0, [this] { CheckDeadlines(); });
}

// --- Lives ------------------------------------------------------------------------------------------------------

std::string World::NewAddress() { return absl::StrCat("127.0.0.1:", ++last_address_); }

void World::StartScheduler() {
  scheduler_address_ = NewAddress();
  scheduler_ = std::make_unique<SchedulerProcess>(scene_, scheduler_address_);
  scheduler_->life_of = [this](Incarnation incarnation) -> LifeId {
    for (const auto& server : servers_) {
      if (server->incarnation() == incarnation) return server->life;
    }
    return 0;
  };
}

void World::StartServer(const std::string& name, const std::string& address) {
  scene_.Tell(name, " starts at ", address);
  servers_.push_back(std::make_unique<ServerProcess>(scene_, name, address));
}

void World::StartWorker(const std::string& name) {
  scene_.Tell(name, " starts");
  workers_.push_back(std::make_unique<WorkerProcess>(scene_, name, ++last_pid_));
}

bool World::Present(const std::string& server) const {
  return std::any_of(servers_.begin(), servers_.end(), [&](const auto& there) { return there->name == server; });
}

void World::RestartServer(const std::string& name, const std::string& address) {
  events_.After(lives_.Between(absl::Milliseconds(100), absl::Seconds(2)), 0, [this, name, address] {
    if (!scene_.done && !Present(name)) StartServer(name, lives_.Chance(0.5) ? address : NewAddress());
  });
}

void World::RestartWorker(const std::string& name) {
  events_.After(lives_.Between(absl::Milliseconds(100), absl::Seconds(3)), 0, [this, name] {
    if (!scene_.done) StartWorker(name);
  });
}

void World::Ended(Host& host, const absl::Status& status) {
  // Not from within its own code.
  events_.After(absl::ZeroDuration(), 0,
                [this, life = host.life, failed = !status.ok(), name = host.name, address = host.address, &host] {
                  if (!events_.Alive(life)) return;
                  const bool server =
                      std::any_of(servers_.begin(), servers_.end(), [&](const auto& p) { return p.get() == &host; });
                  const bool worker =
                      std::any_of(workers_.begin(), workers_.end(), [&](const auto& p) { return p.get() == &host; });
                  if (failed) scene_.Tell(name, " has failed");
                  Bury(host, /*silently=*/false);
                  const bool drained = !failed && drained_.contains(name);
                  if (server && !drained && !scene_.done) RestartServer(name, address);
                  if (worker && failed && !scene_.done) RestartWorker(name);
                });
}

void World::Bury(Host& host, bool silently) {
  network_.Gone(host, silently);
  events_.End(host.life);
  if (scheduler_.get() == &host) scheduler_.reset();
  std::erase_if(servers_, [&](const auto& server) { return server.get() == &host; });
  std::erase_if(workers_, [&](const auto& worker) { return worker.get() == &host; });
}

}  // namespace slackline::world
