#include "bench/exchange/trainer.h"

#include <sys/mman.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/exchange/data_path.h"
#include "bench/exchange/plain_pusher.h"
#include "bench/support/rate.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "worker/client/client.h"

namespace slackline::bench {
namespace {

// For one request, and for start-up: generous, so that a small machine can still measure a large model.
constexpr absl::Duration kTimeout = absl::Seconds(120);

// Which shards a pull has changed: every step moves every weight.
class Changes {
 public:
  Changes(const worker::ShardMap& map, absl::Span<const float> parameters) : map_(map), parameters_(parameters) {
    for (const worker::ShardInfo& shard : map_.shards) last_.push_back(parameters_[shard.begin]);
  }

  // Part of the shards that have changed since the last call.
  double Take() {
    size_t changed = 0;
    for (size_t i = 0; i < last_.size(); ++i) {
      const float now = parameters_[map_.shards[i].begin];
      changed += now != last_[i] ? 1 : 0;
      last_[i] = now;
    }
    return static_cast<double>(changed) / static_cast<double>(last_.size());
  }

 private:
  const worker::ShardMap& map_;
  const absl::Span<const float> parameters_;
  std::vector<float> last_;
};

// Keeps this thread's processor busy.
void Compute(double seconds) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  for (const double end = now() + seconds; now() < end;) continue;
}

Outcome OutcomeOf(const Rounds& rounds, double counted) {
  return {.rounds = counted, .seconds = rounds.seconds, .p50_us = rounds.p50_us(), .p99_us = rounds.p99_us()};
}

class Exchanger {
 public:
  Exchanger(const ExchangeBenchOptions& options, const worker::ShardMap& map, uint32_t number,
            const TrainerMemory& shared)
      : map_(map), parameters_(shared.parameters), gradient_(shared.gradient) {
    if (parameters_.empty()) {
      own_parameters_.assign(map.elements, 1.0f);
      parameters_ = absl::MakeSpan(own_parameters_);
      MakeGradient(TransportOf(options) == "shm");
    }
    auto settings = MakeClientOptions(options, WorkerId(number));
    ExitOnError(settings.status());
    settings->push_segment = segment_;
    settings->protection = OpenSecurity(options, security::Role::kWorker).To(security::Role::kServer);
    window_ = options.window;
    backward_ms_ = options.backward_ms;
    others_.assign(window_ - 1, std::vector<float>(map.elements, 1.0f));
    auto client = worker::Client::Create(*settings, map);
    ExitOnError(client.status());
    client_ = *std::move(client);
    ExitOnError(client_->Seed(parameters_, kTimeout));
    ExitOnError(client_->Pull(parameters_, kTimeout));
    info_.samples = 1;
    info_.gradient_norm = 1;
  }

  Outcome Do(const Order& order) {
    switch (order.kind) {
      case Order::Kind::kStep:
        return Step(order);
      case Order::Kind::kLayers:
      case Order::Kind::kAtOnce:
        return StepAfterBackward(order);
      default:
        return Pull(order);
    }
  }

 private:
  // Where backward would write: in the segment that servers of this host read, if there is one.
  void MakeGradient(bool shared) {
    if (shared) {
      auto segment = shm::Segment::Create({.name = "slackline-push", .bytes = map_.elements * sizeof(float)});
      ExitOnError(segment.status());
      segment_ = *std::move(segment);
      gradient_ = {reinterpret_cast<float*>(segment_->data()), map_.elements};
    } else {
      own_gradient_.resize(map_.elements);
      gradient_ = absl::MakeSpan(own_gradient_);
    }
    // Top-k must find the largest among values that differ, as those of a gradient do.
    constexpr float kUnit = 1 / static_cast<float>(std::minstd_rand::max());
    std::minstd_rand random;
    for (float& value : gradient_) value = 0.25f + 0.5f * static_cast<float>(random()) * kUnit;
  }

  // With a window, the pushes of the next rounds are on their way while a round is waited for. All are of the same
  // gradient, which nobody changes.
  Outcome Step(const Order& order) {
    const absl::Time begin = absl::Now();
    Rounds rounds = Repeat(order.seconds, [&] {
      while (client_->steps_in_flight() < window_) BeginStep();
      ExitOnError(client_->FinishStep(kTimeout).status());
    });
    double counted = static_cast<double>(rounds.round_us.size());
    for (; client_->steps_in_flight() > 0; ++counted) ExitOnError(client_->FinishStep(kTimeout).status());
    rounds.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    // With several in flight no call takes as long as a round does.
    if (window_ > 1) rounds.round_us.assign(1, std::numeric_limits<double>::quiet_NaN());
    return OutcomeOf(rounds, counted);
  }

  Outcome StepAfterBackward(const Order& order) {
    constexpr uint64_t kLayers = 16;
    const Rounds rounds = Repeat(order.seconds, [&] {
      ExitOnError(client_->OpenStep(gradient_));
      for (uint64_t layer = kLayers; layer-- > 0;) {
        Compute(1e-3 * backward_ms_ / static_cast<double>(kLayers));
        if (order.kind == Order::Kind::kLayers) client_->Ready(map_.elements * layer / kLayers);
      }
      ExitOnError(client_->CommitStep(info_, parameters_));
      ExitOnError(client_->FinishStep(kTimeout).status());
    });
    return OutcomeOf(rounds, static_cast<double>(rounds.round_us.size()));
  }

  void BeginStep() {
    const size_t part = begun_++ % window_;
    ExitOnError(client_->BeginStep(gradient_, info_, part == 0 ? parameters_ : absl::MakeSpan(others_[part - 1])));
  }

  Outcome Pull(const Order& order) {
    Changes changes(map_, parameters_);
    double whole = 0;
    const Rounds rounds = Repeat(order.seconds, [&] {
      ExitOnError(client_->Pull(parameters_, kTimeout));
      whole += changes.Take();
    });
    return OutcomeOf(rounds, whole);
  }

  const worker::ShardMap& map_;
  std::vector<float> own_parameters_, own_gradient_;
  absl::Span<float> parameters_;
  absl::Span<float> gradient_;
  std::shared_ptr<shm::Segment> segment_;
  uint32_t window_ = 1;
  double backward_ms_ = 0;
  size_t begun_ = 0;
  std::vector<std::vector<float>> others_;  // the weights of further steps in flight
  std::unique_ptr<worker::Client> client_;
  worker::PushInfo info_;
};

// Has a stream from the first order on, when the shards have their weights.
class BesidePusher {
 public:
  BesidePusher(const worker::ShardMap& map, uint32_t number)
      : map_(map), number_(number), gradient_(map.elements, 0.5f) {}

  Outcome Do(const Order& order) {
    SLACKLINE_CHECK(order.kind == Order::Kind::kPush);
    if (pusher_ == nullptr) pusher_ = std::make_unique<PlainPusher>(map_, WorkerId(number_), gradient_);
    const Rounds rounds = Repeat(order.seconds, [&] { pusher_->Push(); });
    return OutcomeOf(rounds, static_cast<double>(rounds.round_us.size()));
  }

 private:
  const worker::ShardMap& map_;
  const uint32_t number_;
  const std::vector<float> gradient_;
  std::unique_ptr<PlainPusher> pusher_;
};

template <typename Worker>
void Obey(Worker& worker, const Channel& channel) {
  channel.Send(Outcome{});
  for (Order order; channel.Receive(&order);) channel.Send(worker.Do(order));
}

void Work(const ExchangeBenchOptions& options, const worker::ShardMap& map, uint32_t number,
          const TrainerMemory& shared, const Channel& channel) {
  rpc::PrepareProcess();
  if (options.pusher_beside && number > options.workers) {
    BesidePusher pusher(map, number);
    return Obey(pusher, channel);
  }
  Exchanger exchanger(options, map, number, shared);
  Obey(exchanger, channel);
}

absl::Span<float> ShareFloats(uint64_t elements, float value) {
  void* memory = mmap(nullptr, elements * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SLACKLINE_CHECK(memory != MAP_FAILED);
  std::fill_n(static_cast<float*>(memory), elements, value);
  return {static_cast<float*>(memory), elements};
}

}  // namespace

TrainerMemory ShareTrainerMemory(uint64_t elements) {
  return {.parameters = ShareFloats(elements, 1.0f), .gradient = ShareFloats(elements, 0.5f)};
}

Trainer::Trainer(const ExchangeBenchOptions& options, const Cluster& cluster, uint32_t number,
                 const TrainerMemory& shared)
    : child_(absl::StrCat("worker ", number),
             [&](const Channel& channel) { Work(options, cluster.map(), number, shared, channel); }),
      patience_(kTimeout) {}

void Trainer::AwaitReady() { Await(); }

void Trainer::Give(const Order& order) {
  patience_ = absl::Seconds(order.seconds) + kTimeout;
  if (!child_.channel().Send(order)) Fail();
}

Outcome Trainer::Await() {
  Outcome outcome;
  if (!child_.channel().Receive(&outcome, patience_)) Fail();
  return outcome;
}

Outcome Trainer::Do(const Order& order) {
  Give(order);
  return Await();
}

void Trainer::Fail() const {
  ExitOnError(absl::UnavailableError(
      absl::StrCat(child_.name(), " has ended, or has not answered within ", absl::FormatDuration(patience_))));
}

}  // namespace slackline::bench
