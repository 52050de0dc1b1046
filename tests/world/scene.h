// What every process of a world is given.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/ids.h"
#include "common/timeouts.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/service/service_metrics.h"
#include "scheduler_state.pb.h"
#include "tests/world/events.h"
#include "tests/world/ledger.h"
#include "tests/world/memory_disk.h"
#include "tests/world/network.h"
#include "tests/world/options.h"

namespace slackline::world {

inline constexpr JobId kJob{77};
inline constexpr uint64_t kFingerprint = 5;

// Frames on their way. Several items of a frame would be said one after the other.
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
  // Where the scheduler is now, as its address file says.
  std::function<std::string()> scheduler;
  // A server process, which is about to end since all is done, stands there as the others know it.
  std::function<void(Host& server)> parting;
  // The process has ended by itself. It is destroyed later.
  std::function<void(Host& host, const absl::Status& status)> ended;
  std::function<void(const std::string& what)> violated;
  // The job has failed.
  std::function<void(const std::string& reason)> failed;
  // The scheduler takes it for a live worker.
  std::function<bool(const Sender& sender)> live;
  // For traces.
  std::function<void(const std::string& line)> tell;
  // The faults are over, for long enough that nobody suffers from them any more.
  std::function<bool()> calm;
  // The scheduler says that the job is done.
  bool done = false;
  // What the scheduler has saved last.
  std::optional<state::Scheduler> saved = std::nullopt;
  // Ticks of the scheduler at which it could not save.
  uint64_t saves_missed = 0;

  template <typename... Parts>
  void Tell(const Parts&... parts) const {
    if (options.trace) tell(absl::StrCat(parts...));
  }
};

// Codes after which a call is made again.
inline bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

}  // namespace slackline::world
