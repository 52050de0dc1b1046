// Surroundings that every process of a world is given.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/rpc/retryable.h"
#include "common/time/timeouts.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/base/service_metrics.h"
#include "scheduler_state.pb.h"
#include "tests/world/events.h"
#include "tests/world/ledger.h"
#include "tests/world/memory_disk.h"
#include "tests/world/network.h"
#include "tests/world/options.h"

namespace slackline::world {

inline constexpr JobId kJob{77};
inline constexpr uint64_t kFingerprint = 5;

// Frames on their way. Items that a real frame carries together are sent one after the other.
struct WorkerPacket {
  wire::WorkerFrame frame;
  std::vector<float> payload;
};
struct ServerPacket {
  wire::ServerItem item;
  std::vector<float> payload;
  LifeId server = 0;
};
using WorkerPackets = std::shared_ptr<const WorkerPacket>;
using ServerPackets = std::shared_ptr<const ServerPacket>;

struct Scene {
  const Options& options;
  job::Job job;
  Timeouts timeouts;
  Counts& counts;
  Events& events;
  Network& network;
  MemoryDisk& disk;
  Ledger& ledger;
  ps::ServiceMetrics& metrics;
  Random random;
  // Returns the present address of the scheduler, as its address file does.
  std::function<std::string()> scheduler;
  // Called for a server process that is about to end since all is done, while it is as the others know it.
  std::function<void(Host& server)> parting;
  // Called when a process has ended by itself. It is destroyed later.
  std::function<void(Host& host, const absl::Status& status)> ended;
  std::function<void(const std::string& what)> violated;
  // Called when the job has failed.
  std::function<void(const std::string& reason)> failed;
  // Returns whether the scheduler takes the sender for a live worker.
  std::function<bool(const Sender& sender)> live;
  // Adds a line to the trace.
  std::function<void(const std::string& line)> tell;
  // Returns true once the faults have been over for long enough that nobody suffers from them any more.
  std::function<bool()> calm;
  // True once the scheduler says that the job is done.
  bool done = false;
  // State that the scheduler has saved last.
  std::optional<state::Scheduler> saved = std::nullopt;
  // Number of the scheduler's ticks at which it could not save.
  uint64_t saves_missed = 0;

  template <typename... Parts>
  void Tell(const Parts&... parts) const {
    if (options.trace) tell(absl::StrCat(parts...));
  }
};

}  // namespace slackline::world
