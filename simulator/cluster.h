// A whole simulated run: the scheduler's controller, the servers and the workers, in virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/base/server_calls.h"
#include "scheduler/control/controller.h"
#include "simulator/computation.h"
#include "simulator/event_queue.h"
#include "simulator/network.h"
#include "simulator/server.h"
#include "simulator/worker.h"
#include "simulator/world.h"

namespace slackline::simulator {

// Costs of a run in the simulated world.
struct Costs {
  uint64_t events = 0;
  // Messages and bytes on the network, including gradients and weights.
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t bytes_to_servers = 0;
  // Number of calls of all processes to the scheduler.
  uint64_t scheduler_calls = 0;
};

// Thread-safety: none.
// Ownership:     borrows the computation.
class SimulatedCluster final : public scheduler::ServerCalls {
 public:
  struct Config {
    job::Job job;  // resolved; simulation.compute_us_per_sample is above 0
    std::string run_folder;
    Timeouts timeouts;
  };
  // Callback that writes reports during the run and at its end; `now` is virtual time.
  using OnReport = std::function<void(scheduler::Controller& controller, absl::Time now)>;

  SimulatedCluster(const Config& config, Computation& computation, OnReport on_report);
  ~SimulatedCluster() override;

  // Simulates the run to its end, or to simulation.time_max_s. Calls `between` after each event.
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
  // State of the scheduler's calls to one server.
  struct Link {
    scheduler::ServerRef ref;
    std::unique_ptr<wire::SetMembersRequest> members;  // latest request, not sent yet
    bool in_flight = false;
  };

  void RegisterServers();
  void Beat(size_t server);
  void SendMembers(size_t server);
  void TickScheduler();
  void TickServers();
  // Evaluates the current weights every simulation.evaluate_every_s of training, unless they are unchanged since the
  // last evaluation.
  void Observe();
  size_t IndexOf(scheduler::ServerRef server) const { return server.server.value() - 1; }

  const Config config_;
  const OnReport on_report_;
  EventQueue queue_;
  VirtualNetwork network_;
  scheduler::Controller controller_;
  World world_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<Link> links_;
  std::optional<uint64_t> observed_;  // samples applied at the last Observe() that evaluated
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace slackline::simulator
