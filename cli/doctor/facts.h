// What is known of a machine: made by the probes, judged by the checks. Plain values, so that a test can describe any
// machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace slackline::cli::doctor {

// Of this process and those that it starts; nullopt: without limit.
struct LimitFacts {
  std::optional<uint64_t> descriptors;
  std::optional<uint64_t> locked_bytes;
  // Processes and threads of the user.
  std::optional<uint64_t> threads;
  std::optional<uint64_t> address_bytes;
};

struct MemoryFacts {
  uint64_t machine_bytes = 0;
  uint64_t available_bytes = 0;
  // The smallest limit of the control groups that this process is in, and what they use of it.
  std::optional<uint64_t> group_bytes;
  uint64_t group_used_bytes = 0;
  // "always", "madvise", "never"; empty: not known.
  std::string huge_pages;
  // Why no memory can be shared between processes.
  absl::Status sharing;
  // Of /dev/shm; 0: there is none.
  uint64_t shm_bytes = 0;
};

struct ProcessorFacts {
  // Hardware threads that this process may use.
  uint32_t threads = 1;
  uint32_t threads_per_core = 1;
  // What the control groups allow, in threads.
  std::optional<double> group_threads;
  // "performance", "powersave"; empty: not known.
  std::string governor;
};

struct ClockFacts {
  // False where the kernel does not say.
  bool known = false;
  bool synchronised = false;
  absl::Duration error_max;
};

// In DiskFacts.purpose.
inline constexpr char kRunFolderPurpose[] = "run folder";
inline constexpr char kSnapshotsPurpose[] = "snapshots";

// A folder that a run writes to.
struct DiskFacts {
  // "run folder, snapshots"
  std::string purpose;
  // As the job names it, and its nearest folder that exists, which was tried.
  std::string path;
  std::string tried;
  // Why nothing can be written there; what is below is then not known.
  absl::Status writable;
  // "ext4", "nfs", "tmpfs", or the number that the kernel says.
  std::string file_system;
  uint64_t free_bytes = 0;
  double write_mb_per_s = 0;
  // Of a small file that is written, synced and renamed.
  absl::Duration sync_median;
  absl::Duration sync_max;
  // flock(2) and fcntl(2).
  absl::Status locks;
  absl::Status record_locks;
  absl::Status renames;
};

struct PortFacts {
  // What others will reach this machine at.
  std::string address;
  // Why it cannot be listened on.
  absl::Status listening;
  absl::Status metrics_port;
  // Of network.ports.
  uint32_t range_size = 0;
  uint32_t range_free = 0;
};

// Of a connection between two processes, on one machine or two.
struct LinkFacts {
  absl::Duration round_trip;
  double to_mb_per_s = 0;
  double from_mb_per_s = 0;
  // Of the other machine, less ours; known to within half a round trip.
  absl::Duration clock_ahead;
};

struct GpuFacts {
  std::vector<std::string> names;
  // Empty: none was found.
  std::string driver;
  std::string nccl;
};

struct SystemFacts {
  std::string host;
  // "docker", "kubernetes", "apptainer", ...; empty: none that is known.
  std::string container;
  bool root = false;
  uint64_t user_threads = 0;
  bool infiniband = false;
  LimitFacts limits;
  MemoryFacts memory;
  ProcessorFacts processor;
  ClockFacts clock;
  GpuFacts gpu;
};

}  // namespace slackline::cli::doctor
