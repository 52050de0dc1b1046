// A whole simulated run: the scheduler's controller, the servers and the workers, in virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/controller.h"
#include "scheduler/server_calls.h"
#include "simulator/computation.h"
#include "simulator/event_queue.h"
#include "simulator/network.h"
#include "simulator/server.h"
#include "simulator/worker.h"
#include "simulator/world.h"

namespace slackline::simulator {

// What a run has cost, in the world that was played.
struct Costs {
  uint64_t events = 0;
  // Of the network, gradients and weights included.
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t bytes_to_servers = 0;
  // Calls of all processes to the scheduler.
  uint64_t scheduler_calls = 0;
};

// Thread-safety: none.
// Ownership:     borrows the computation.
class Cluster final : public scheduler::ServerCalls {
 public:
  struct Config {
    job::Job job;  // resolved; simulation.compute_us_per_sample is above 0
    std::string run_folder;
    Timeouts timeouts;
  };
  // What is to be written down, in virtual time.
  using OnReport = std::function<void(scheduler::Controller& controller, absl::Time now)>;

  Cluster(const Config& config, Computation& computation, OnReport on_report);
  ~Cluster() override;

  // Plays the run to its end, or to simulation.time_max_s. `between` is called after each event.
  void Run(const std::function<void()>& between);

  scheduler::Controller& controller() { return controller_; }
  const EventQueue& queue() const { return queue_; }
  Costs costs() const;

  void Connect(scheduler::ServerRef server, const std::string& name, const std::string& address,
               scheduler::ServerObserver& observer) override;
  void TakeShards(scheduler::ServerRef, const wire::TakeShardsRequest&) override {}
  void Disconnect(scheduler::ServerRef /*server*/) override {}
  void Install(scheduler::ServerRef server, const wire::InstallShardsRequest& request) override;
  void SetMembers(scheduler::ServerRef server, const wire::SetMembersRequest& request) override;
  // Simulated runs keep nothing.
  void BeginCheckpoint(scheduler::ServerRef /*server*/, const wire::BeginCheckpointRequest& /*request*/) override {}
  void Stop(scheduler::ServerRef server, const wire::StopRequest& request) override;

 private:
  // The scheduler's line to one server.
  struct Link {
    scheduler::ServerRef ref;
    std::unique_ptr<wire::SetMembersRequest> members;  // the latest wish, not sent yet
    bool in_flight = false;
  };

  void RegisterServers();
  void Beat(size_t server);
  void SendMembers(size_t server);
  void TickScheduler();
  void TickServers();
  // Measures the weights of now, each simulation.evaluate_every_s of training, if they are others than last time.
  void Observe();
  size_t IndexOf(scheduler::ServerRef server) const { return server.server.value() - 1; }

  const Config config_;
  const OnReport on_report_;
  EventQueue queue_;
  Network network_;
  scheduler::Controller controller_;
  World world_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<Link> links_;
  std::optional<uint64_t> observed_;  // samples applied at the last Observe() that measured
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace slackline::simulator
