#include "tests/sim/cluster_sim.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/shard_model.h"
#include "tests/sim/step_rules.h"

namespace slackline::sim {
namespace {

using ps::Sender;

// Virtual time in microseconds.
using Ticks = int64_t;
constexpr Ticks kMs = 1000;

// One shard on a server process of its own.
struct Shard {
  explicit Shard(ShardModel model) : model(std::move(model)) {}

  ServerId server;
  Incarnation incarnation;
  bool up = false;
  uint64_t life = 0;  // counts starts; messages to an earlier life are lost
  std::unique_ptr<FaultyEngine> engine;
  ps::EngineState manifest;
  ShardModel model;
};

// One worker process.
struct Worker {
  bool up = false;
  bool paused = false;
  uint64_t life = 0;
  std::string name;
  std::optional<WorkerId> id;
  Incarnation incarnation;
  bool live = false;
  bool done = false;
  Clock64 first_clock;
  std::unique_ptr<worker::Session> session;
  bool computing = false;
  std::vector<std::optional<Weights>> weights;            // by shard: what its parameters hold
  std::vector<std::optional<Weights>> base;               // by shard: what the push in flight was computed from
  std::vector<uint64_t> stream;                           // by shard: connection number, 0 when there is none
  std::map<std::pair<uint32_t, uint64_t>, Fate> answers;  // (shard, sequence): the first answer received
};

class Cluster {
 public:
  explicit Cluster(const Options& options)
      : options_(options), config_(EngineConfig(options)), random_(options.seed), membership_(MakeConfig()) {}

  Outcome Run() {
    for (uint32_t i = 0; i < options_.shards; ++i) StartFirst(i);
    workers_.resize(options_.workers);
    for (uint32_t i = 0; i < options_.workers; ++i) {
      At(Chance(3) ? Random(0, 2000 * kMs) : Random(0, 50 * kMs), [this, i] { StartWorker(i); });
    }
    Every(100 * kMs, [this] { SchedulerTick(); });
    ScheduleFaults();
    const Ticks end = absl::ToInt64Microseconds(options_.faults_until) + 120'000 * kMs;
    while (!queue_.empty() && outcome_.violation.empty() && !(AllDone() && AllApplied())) {
      std::pop_heap(queue_.begin(), queue_.end());
      const Event event = queue_.back();
      queue_.pop_back();
      const std::function<void()> run = std::move(events_[event.place]);
      free_.push_back(event.place);
      now_ = event.at;
      if (now_ > end) {
        Violation(absl::StrCat("hang: ", Diagnosis()));
        break;
      }
      ++outcome_.events;
      run();
    }
    if (outcome_.violation.empty()) CheckAcknowledged();
    return outcome_;
  }

 private:
  struct Event {
    Ticks at;
    uint64_t order;
    uint32_t place;  // in events_
    bool operator<(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  static scheduler::Membership::Config MembershipConfig(uint32_t servers) {
    scheduler::Membership::Config config;
    config.servers = servers;
    return config;
  }
  scheduler::Membership::Config MakeConfig() const { return MembershipConfig(options_.shards); }

  static ps::EngineConfig EngineConfig(const Options& options) {
    ps::EngineConfig config;
    config.mode = options.mode;
    config.staleness_max = options.staleness_max;
    config.softsync_n = options.softsync_n;
    config.quorum = options.quorum;
    config.quorum_deadline = options.quorum_deadline;
    config.grace = options.grace;
    config.window_max = 4;
    return config;
  }

  // --- Time and chance -------------------------------------------------------------------------------------------

  void At(Ticks delay, std::function<void()> run) {
    // The heap moves places, not events.
    const uint32_t place = free_.empty() ? static_cast<uint32_t>(events_.size()) : free_.back();
    if (free_.empty()) {
      events_.push_back(std::move(run));
    } else {
      free_.pop_back();
      events_[place] = std::move(run);
    }
    queue_.push_back({now_ + delay, order_++, place});
    std::push_heap(queue_.begin(), queue_.end());
  }
  void Every(Ticks period, std::function<void()> run) {
    At(period, [this, period, run = std::move(run)]() mutable {
      run();
      Every(period, std::move(run));
    });
  }
  Ticks Random(Ticks low, Ticks high) {
    return low + static_cast<Ticks>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(uint64_t one_in) { return random_() % one_in == 0; }
  // Mostly quick, sometimes slow.
  Ticks Delay() { return Chance(10) ? Random(1 * kMs, 200 * kMs) : Random(50, 2 * kMs); }
  absl::Time Time() const { return absl::UnixEpoch() + absl::Microseconds(now_); }
  bool FaultsOver() const { return now_ > absl::ToInt64Microseconds(options_.faults_until); }

  void Violation(const std::string& what) {
    if (outcome_.violation.empty()) {
      outcome_.violation = absl::StrCat("seed ", options_.seed, " at ", now_ / kMs, " ms: ", what);
    }
  }

  // What a shard's model has to say.
  void Check(uint32_t shard, const std::string& violation) {
    if (!violation.empty()) Violation(absl::StrCat("shard ", shard, " ", violation));
  }

  // --- Scheduler -------------------------------------------------------------------------------------------------

  void SchedulerTick() {
    scheduler::MembershipActions actions;
    membership_.Tick(Time(), actions);
    Carry(actions);
    // Repeats the set to whoever has not acknowledged it.
    for (uint32_t i = 0; i < shards_.size(); ++i) {
      const auto& server = membership_.servers().at(shards_[i].server);
      if (server.acknowledged < membership_.epoch()) {
        SendMembers({shards_[i].server, server.incarnation, membership_.epoch(), {}, membership_.Members(), {}});
      }
    }
  }

  void Carry(const scheduler::MembershipActions& actions) {
    for (const auto& action : actions) {
      if (const auto* send = std::get_if<scheduler::SendMembersAction>(&action)) {
        SendMembers(*send);
      } else if (const auto* live = std::get_if<scheduler::WorkerLiveAction>(&action)) {
        CheckLive(*live);
        first_clocks_[{live->worker, live->incarnation}] = live->first_clock;
        ++outcome_.joins;
      } else if (const auto* fenced = std::get_if<scheduler::WorkerFencedAction>(&action)) {
        fenced_.insert({fenced->worker, fenced->incarnation});
      } else if (std::holds_alternative<scheduler::WorkerDeadAction>(action)) {
        ++outcome_.deaths;
      }
    }
  }

  void SendMembers(const scheduler::SendMembersAction& action) {
    if (!FaultsOver() && Chance(5)) return;  // lost; the next tick repeats it
    ps::MemberSet set = {.epoch = action.epoch, .since = action.since, .gone = action.gone};
    for (const auto& member : action.members) set.members.push_back({{member.worker, member.incarnation}, member.name});
    At(Delay(),
       [this, shard = action.server.value() - 1, incarnation = action.server_incarnation, set = std::move(set)] {
         Shard& s = shards_[shard];
         if (!s.up || s.incarnation != incarnation) return;
         ps::Actions actions;
         if (!s.engine->SetMembers(set, actions).ok()) return;
         s.model.SetMembers(set);
         Carry(shard, actions);
         const Clock64 clock_min = s.engine->clock_min();
         At(Delay(), [this, shard, incarnation, epoch = set.epoch, clock_min] {
           scheduler::MembershipActions more;
           membership_.MembersInstalled(shards_[shard].server, incarnation, epoch, clock_min, more);
           Carry(more);
         });
       });
  }

  // --- Shards ----------------------------------------------------------------------------------------------------

  void StartFirst(uint32_t index) {
    Shard& shard = shards_.emplace_back(ShardModel(config_, outcome_));
    shard.engine = std::make_unique<FaultyEngine>(config_, options_.bugs);
    shard.manifest = shard.engine->Snapshot();
    Up(index);
    Every(Random(200, 900) * kMs, [this, index] { Snapshot(index); });
    // Only quorum acts upon time; the others give notices.
    Every((options_.mode == ps::Mode::kQuorum ? 100 : 500) * kMs, [this, index] { Tick(index); });
  }

  void Tick(uint32_t index) {
    if (!shards_[index].up) return;
    ps::Actions actions;
    shards_[index].engine->Tick(Time(), actions);
    Carry(index, actions);
  }

  void Up(uint32_t index) {
    Shard& shard = shards_[index];
    shard.up = true;
    ++shard.life;
    scheduler::MembershipActions actions;
    auto registered = membership_.RegisterServer(absl::StrCat("ps-", index + 1), "", Time(), actions);
    shard.server = ServerId(registered->id);
    shard.incarnation = registered->incarnation;
    Carry(actions);
    Beat(index, shard.life);
  }

  void Beat(uint32_t index, uint64_t life) {
    const Shard& shard = shards_[index];
    if (!shard.up || shard.life != life) return;
    (void)membership_.HeartbeatServer(shard.server, shard.incarnation, Time());
    At(300 * kMs, [this, index, life] { Beat(index, life); });
  }

  void Snapshot(uint32_t index) {
    Shard& shard = shards_[index];
    if (!shard.up || !Chance(2)) return;
    shard.manifest = shard.engine->Snapshot();
    shard.model.Snapshot();
  }

  void Crash(uint32_t index) {
    Shard& shard = shards_[index];
    if (!shard.up) return;
    shard.up = false;
    ++outcome_.restores;
    for (uint32_t w = 0; w < workers_.size(); ++w) Break(w, index);
    At(Random(10, 1500) * kMs, [this, index] {
      Shard& s = shards_[index];
      s.engine = std::make_unique<FaultyEngine>(config_, s.manifest, options_.bugs);
      s.model.Restore();
      Up(index);
      // What it is now counts as durable: a second crash must not go back behind this lineage.
      s.manifest = s.engine->Snapshot();
    });
  }

  // --- Carrying out a shard's actions ----------------------------------------------------------------------------

  void Carry(uint32_t index, const ps::Actions& actions) {
    Shard& shard = shards_[index];
    for (const ps::Action& action : actions) {
      if (!outcome_.violation.empty()) return;
      if (const auto* apply = std::get_if<ps::ApplyAction>(&action)) {
        Check(index, shard.model.Apply(shard.engine->AsPushed(*apply), fenced_, Time()));
      } else if (const auto* drop = std::get_if<ps::DropAction>(&action)) {
        Check(index, shard.model.Drop(drop->push));
      } else if (const auto* answer = std::get_if<ps::AnswerAction>(&action)) {
        Check(index, shard.model.Answer(*answer));
        Answer(index, *answer);
      } else if (const auto* serve = std::get_if<ps::ServeAction>(&action)) {
        Serve(shard, index, *serve);
      } else if (const auto* refuse = std::get_if<ps::RefuseAction>(&action)) {
        Refused(index, *refuse);
      } else if (const auto* waiting = std::get_if<ps::WaitingAction>(&action)) {
        Check(index, shard.model.CheckCulprit(*waiting, pulls_.at({index, waiting->sender, waiting->id}),
                                              *shard.engine->clock(waiting->sender.worker)));
        ++outcome_.notices;
      } else if (const auto* lost = std::get_if<ps::LostAction>(&action)) {
        Check(index, shard.model.Lose(*lost));
      }
    }
  }

  void Answer(uint32_t index, const ps::AnswerAction& action) {
    const Fate fate = action.answer.outcome == ps::Outcome::kApplied ? Fate::kApplied : Fate::kDiscarded;
    ToWorker(index, action.sender, [this, index, sequence = action.answer.sequence, fate](uint32_t w) {
      Answered(w, index, sequence, fate);
    });
  }

  // Invariant 2 of the design, and reading one's own writes: what a served pull must contain.
  void Serve(Shard& shard, uint32_t index, const ps::ServeAction& serve) {
    const auto waiting = pulls_.find({index, serve.sender, serve.id});
    if (waiting == pulls_.end()) return Violation("serves a pull that nobody asked for");
    const Clock64 clock = waiting->second;
    CheckContains(shard, index, serve.sender, clock);
    if (options_.mode == ps::Mode::kSsp || options_.mode == ps::Mode::kBsp) {
      const uint64_t bound = options_.mode == ps::Mode::kBsp ? 0 : options_.staleness_max;
      const Clock64 needed(clock.value() > bound ? clock.value() - bound : 0);
      for (const auto& member : membership_.Members()) {
        const Sender sender{member.worker, member.incarnation};
        if (!shard.engine->clock(sender.worker)) continue;
        if (first_clocks_.contains(sender)) CheckContains(shard, index, sender, needed);
        if (*shard.engine->clock(sender.worker) < needed) {
          Violation(absl::StrCat("shard ", index, " lets ", Show({serve.sender, clock}), " go, worker ",
                                 sender.worker.value(), " is at ", shard.engine->clock(sender.worker)->value()));
        }
      }
    }
    ToWorker(index, serve.sender,
             [this, index, id = serve.id, weights = shard.model.Now(shard.engine->version())](uint32_t w) {
               Pulled(w, index, id, weights);
             });
  }

  void CheckContains(const Shard& shard, uint32_t index, const Sender& sender, Clock64 upto) {
    auto first = first_clocks_.find(sender);
    if (first == first_clocks_.end()) return Violation("a worker that is not live pulls");
    for (Sequence s = first->second.Next(); s <= upto; s = s.Next()) {
      if (!shard.model.FateOf({sender, s})) {
        Violation(absl::StrCat("shard ", index, " serves weights without ", Show({sender, s})));
      }
    }
  }

  void Refused(uint32_t index, const ps::RefuseAction& refuse) {
    // An unknown incarnation is told so; any other refusal is a bug of the session.
    if (shards_[index].model.IsMember(refuse.sender)) {
      Violation(absl::StrCat("shard ", index, " refuses a member: ", refuse.status.ToString()));
    }
  }

  // --- Streams ---------------------------------------------------------------------------------------------------

  void ToWorker(uint32_t shard, const Sender& sender, std::function<void(uint32_t)> deliver) {
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      Worker& worker = workers_[w];
      if (!worker.up || worker.id != sender.worker || worker.incarnation != sender.incarnation) continue;
      const uint64_t stream = worker.stream[shard];
      if (stream == 0) return;
      return Ordered(stream, /*to_worker=*/true, [this, w, shard, stream, deliver = std::move(deliver)] {
        if (workers_[w].up && workers_[w].stream[shard] == stream) deliver(w);
      });
    }
  }

  void ToShard(uint32_t w, uint32_t shard, std::function<void()> deliver) {
    const uint64_t stream = workers_[w].stream[shard];
    const uint64_t life = shards_[shard].life;
    Ordered(stream, /*to_worker=*/false, [this, shard, stream, life, deliver = std::move(deliver)] {
      // The server reads what was sent before the worker died, but not after the stream broke under it.
      if (broken_.contains(stream) || !shards_[shard].up || shards_[shard].life != life) return;
      deliver();
    });
  }

  // First in, first out in each direction.
  void Ordered(uint64_t stream, bool to_worker, std::function<void()> deliver) {
    Ticks& last = arrival_[{stream, to_worker}];
    last = std::max(last, now_ + Delay());
    At(last - now_, std::move(deliver));
  }

  void Break(uint32_t w, uint32_t shard) {
    Worker& worker = workers_[w];
    if (worker.stream.empty() || worker.stream[shard] == 0) return;
    broken_.insert(worker.stream[shard]);
    ++outcome_.stream_breaks;
    worker.stream[shard] = 0;
    if (worker.session) worker.session->Disconnected(ShardId(shard));
    if (shards_[shard].up && worker.id) shards_[shard].engine->Disconnected({*worker.id, worker.incarnation});
    At(Random(1, 300) * kMs,
       [this, w, shard, life = worker.life, inc = worker.incarnation] { Open(w, shard, life, inc); });
  }

  void Open(uint32_t w, uint32_t shard, uint64_t life, Incarnation incarnation) {
    Worker& worker = workers_[w];
    if (!worker.up || worker.life != life || worker.incarnation != incarnation || worker.done) return;
    if (!worker.live || worker.stream[shard] != 0) return;
    auto retry = [this, w, shard, life, incarnation] {
      At(Random(5, 100) * kMs, [this, w, shard, life, incarnation] { Open(w, shard, life, incarnation); });
    };
    if (!shards_[shard].up) return retry();
    const Sender sender{*worker.id, worker.incarnation};
    ps::Actions actions;
    const absl::Status status = shards_[shard].engine->Hello(
        {sender, worker.first_clock, worker.session->last_answered(ShardId(shard))}, actions);
    Carry(shard, actions);
    if (!status.ok()) return retry();  // the set may still be on its way; if it is fenced, the scheduler says so
    CheckTold(w, shard);
    worker.stream[shard] = ++last_stream_;
    for (const auto& send : worker.session->Connected(ShardId(shard))) Say(w, send);
  }

  // A pull may go before or after the push that it waits for.
  void Say(uint32_t w, const worker::Session::Send& send) {
    if (workers_[w].stream[send.shard.value()] == 0) return;
    const bool pull_first = Chance(2);
    if (send.pull && pull_first) SayPull(w, send);
    if (send.push) SayPush(w, send);
    if (send.pull && !pull_first) SayPull(w, send);
  }

  void SayPush(uint32_t w, const worker::Session::Send& send) {
    const uint32_t shard = send.shard.value();
    const Sender sender{*workers_[w].id, workers_[w].incarnation};
    const Weights& base = *workers_[w].base[shard];
    if (base.version != send.base) Violation("the session names another base than the gradient has");
    ToShard(w, shard, [this, shard, sender, base, sequence = *send.push] {
      Shard& s = shards_[shard];
      const PushKey key{sender, sequence};
      if (s.engine->Admit(sender, sequence) == ps::Engine::Admission::kStage) s.model.Stage(key, base, Time());
      s.model.Arrives(key);
      ps::Actions actions;
      s.engine->Push({sender, sequence, base.version, 1, Time()}, actions);
      Carry(shard, actions);
      s.model.Arrives(std::nullopt);
    });
  }

  void SayPull(uint32_t w, const worker::Session::Send& send) {
    const uint32_t shard = send.shard.value();
    const Sender sender{*workers_[w].id, workers_[w].incarnation};
    ToShard(w, shard, [this, shard, sender, id = *send.pull, clock = send.clock] {
      pulls_[{shard, sender, id}] = clock;
      ps::Actions actions;
      shards_[shard].engine->Pull({sender, id, clock}, Time(), actions);
      Carry(shard, actions);
    });
  }

  // --- Workers ---------------------------------------------------------------------------------------------------

  void StartWorker(uint32_t w) {
    Worker& worker = workers_[w];
    worker.up = true;
    worker.paused = false;
    ++worker.life;
    worker.name = absl::StrCat("worker-", w + 1);
    // A new process is a new worker; a process that was expelled comes back under its number.
    Register(w, std::nullopt);
    WorkerBeat(w, worker.life);
  }

  void Register(uint32_t w, std::optional<WorkerId> previous) {
    Worker& worker = workers_[w];
    scheduler::MembershipActions actions;
    auto registered = membership_.RegisterWorker(worker.name, previous, Time(), actions);
    worker.id = WorkerId(registered->id);
    worker.incarnation = registered->incarnation;
    worker.live = false;
    worker.computing = false;
    worker.session.reset();
    worker.answers.clear();
    worker.weights.assign(options_.shards, std::nullopt);
    worker.base.assign(options_.shards, std::nullopt);
    worker.stream.assign(options_.shards, 0);
    Carry(actions);
  }

  void WorkerBeat(uint32_t w, uint64_t life) {
    Worker& worker = workers_[w];
    if (!worker.up || worker.life != life || worker.done) return;
    At(300 * kMs, [this, w, life] { WorkerBeat(w, life); });
    if (worker.paused) return;
    if (!membership_.HeartbeatWorker(*worker.id, worker.incarnation, Time()).ok()) {
      for (uint32_t s = 0; s < shards_.size(); ++s) {
        if (worker.stream[s] != 0) broken_.insert(worker.stream[s]);
        if (shards_[s].up) shards_[s].engine->Disconnected({*worker.id, worker.incarnation});
      }
      return Register(w, worker.id);
    }
    const auto& member = membership_.workers().at(*worker.id);
    if (!worker.live && member.state == scheduler::WorkerState::kLive) GoLive(w, member.first_clock);
  }

  void GoLive(uint32_t w, Clock64 first_clock) {
    Worker& worker = workers_[w];
    worker.live = true;
    worker.first_clock = first_clock;
    worker.session = std::make_unique<worker::Session>(options_.shards, first_clock);
    worker.session->BeginPull();
    for (uint32_t s = 0; s < shards_.size(); ++s) Open(w, s, worker.life, worker.incarnation);
  }

  void Answered(uint32_t w, uint32_t shard, Sequence sequence, Fate fate) {
    Worker& worker = workers_[w];
    auto [known, fresh] = worker.answers.insert({{shard, sequence.value()}, fate});
    if (known->second != fate) Violation(absl::StrCat("worker ", w, " got two answers to push ", sequence.value()));
    const auto outcome =
        fate == Fate::kApplied ? worker::Session::Outcome::kApplied : worker::Session::Outcome::kDiscarded;
    if (auto news = worker.session->Answered(ShardId(shard), sequence, outcome); !news.ok()) {
      return Violation(std::string(news.status().message()));
    }
    Compute(w);
  }

  void Pulled(uint32_t w, uint32_t shard, PullId id, const Weights& weights) {
    Worker& worker = workers_[w];
    if (worker.session->Pulled(ShardId(shard), id, weights.version).empty()) return;
    worker.weights[shard] = weights;
    Compute(w);
  }

  void Compute(uint32_t w) {
    Worker& worker = workers_[w];
    if (!worker.session->idle() || worker.computing) return;
    if (worker.session->clock() >= Clock64(options_.clock_target)) return Finish(w);
    worker.session->Take(worker.session->sequence());
    worker.computing = true;
    const Ticks time = Chance(8) ? Random(10, 400) * kMs : Random(1, 20) * kMs * (w + 1);
    At(time, [this, w, life = worker.life, incarnation = worker.incarnation] { Push(w, life, incarnation); });
  }

  void Push(uint32_t w, uint64_t life, Incarnation incarnation) {
    Worker& worker = workers_[w];
    if (!worker.up || worker.life != life || worker.incarnation != incarnation || !worker.computing) return;
    if (worker.paused) {
      At(50 * kMs, [this, w, life, incarnation] { Push(w, life, incarnation); });
      return;
    }
    worker.computing = false;
    worker.base = worker.weights;
    for (const auto& send : worker.session->BeginStep()) Say(w, send);
  }

  void Finish(uint32_t w) {
    Worker& worker = workers_[w];
    worker.done = true;
    scheduler::MembershipActions actions;
    membership_.Leave(*worker.id, worker.incarnation, "done", actions);
    Carry(actions);
  }

  bool AllDone() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.done; });
  }

  // What was accepted is applied once nobody is left.
  bool AllApplied() const {
    return std::all_of(shards_.begin(), shards_.end(), [](const Shard& s) { return s.model.all_applied(); });
  }

  // --- Faults ----------------------------------------------------------------------------------------------------

  void ScheduleFaults() {
    const Ticks until = absl::ToInt64Microseconds(options_.faults_until);
    const int count = static_cast<int>(Random(0, 6));
    for (int i = 0; i < count; ++i) {
      At(Random(0, until), [this, kind = Random(0, 5)] { Fault(kind); });
    }
  }

  void Fault(Ticks kind) {
    const auto w = static_cast<uint32_t>(Random(0, options_.workers - 1));
    const auto s = static_cast<uint32_t>(Random(0, options_.shards - 1));
    Worker& worker = workers_[w];
    if (kind <= 1 && options_.break_streams) return Break(w, s);
    if (kind <= 3 && options_.restore_shards) return Crash(s);
    if (!worker.up || worker.done) return;
    if (kind == 4 && options_.kill_workers) {
      for (uint32_t i = 0; i < shards_.size(); ++i) Break(w, i);
      worker.up = false;
      At(Random(10, 8000) * kMs, [this, w] { StartWorker(w); });
    } else if (kind == 5 && options_.pause_workers) {
      worker.paused = true;
      At(Random(10, 8000) * kMs, [this, w, life = worker.life] {
        if (workers_[w].life == life) workers_[w].paused = false;
      });
    }
  }

  // --- What must be true -----------------------------------------------------------------------------------------

  void CheckLive(const scheduler::WorkerLiveAction& live) {
    for (const Shard& shard : shards_) {
      const auto& server = membership_.servers().at(shard.server);
      if (shard.up && shard.incarnation == server.incarnation && !shard.engine->clock(live.worker)) {
        Violation(absl::StrCat("worker ", live.worker.value(), " is live, but shard ", shard.server.value() - 1,
                               " does not know it"));
      }
    }
  }

  // What a worker had an answer to is known to the shard that it says Hello to, or was reported as lost.
  void CheckTold(uint32_t w, uint32_t shard) {
    const Worker& worker = workers_[w];
    for (const auto& [where, fate] : worker.answers) {
      const PushKey key{{*worker.id, worker.incarnation}, Sequence(where.second)};
      if (where.first != shard || shards_[shard].model.FateOf(key)) continue;
      Violation(absl::StrCat("shard ", shard, " was restored without ", Show(key), " and has not said so"));
    }
  }

  // Invariant 1: what a worker was told is applied is in the state once, or a restore has lost it and said so.
  void CheckAcknowledged() {
    for (const Worker& worker : workers_) {
      for (const auto& [where, fate] : worker.answers) {
        const Shard& shard = shards_[where.first];
        const PushKey key{{*worker.id, worker.incarnation}, Sequence(where.second)};
        const uint64_t count = shard.model.TimesApplied(key);
        if (count > 1) Violation(absl::StrCat("applied ", count, " times: ", Show(key)));
        if (fate != Fate::kApplied || count == 1 || !shard.up) continue;
        if (shard.model.FateOf(key) == Fate::kLost) continue;
        // A shard that was restored after the worker's last word to it could not tell it any more.
        if (outcome_.restores == 0) Violation(absl::StrCat("acknowledged and not in the state: ", Show(key)));
      }
    }
  }

  std::string Diagnosis() const {
    std::string text;
    for (const Worker& worker : workers_) {
      if (worker.done) continue;
      absl::StrAppend(&text, worker.name, worker.up ? "" : " (down)", worker.live ? "" : " (not live)", " clock ",
                      worker.session ? worker.session->clock().value() : 0, " awaits shards");
      if (worker.session) {
        for (ShardId shard : worker.session->Awaited()) absl::StrAppend(&text, " ", shard.value());
      }
      absl::StrAppend(&text, "; ");
    }
    for (uint32_t i = 0; i < shards_.size(); ++i) {
      absl::StrAppend(&text, "shard ", i, " slowest clock ", shards_[i].engine->clock_min().value(), " held ",
                      shards_[i].engine->held_pushes(), "; ");
    }
    return text;
  }

  const Options options_;
  const ps::EngineConfig config_;
  std::mt19937_64 random_;
  Outcome outcome_;
  Ticks now_ = 0;
  uint64_t order_ = 0;
  std::vector<Event> queue_;  // a heap, the next one first
  std::vector<std::function<void()>> events_;
  std::vector<uint32_t> free_;  // places in events_
  scheduler::Membership membership_;
  std::vector<Shard> shards_;
  std::vector<Worker> workers_;
  uint64_t last_stream_ = 0;
  std::set<uint64_t> broken_;
  std::map<std::pair<uint64_t, bool>, Ticks> arrival_;
  std::map<std::tuple<uint32_t, Sender, PullId>, Clock64> pulls_;
  std::map<Sender, Clock64> first_clocks_;
  std::set<Sender> fenced_;
};

}  // namespace

Outcome Simulate(const Options& options) { return Cluster(options).Run(); }

}  // namespace slackline::sim
