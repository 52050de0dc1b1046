// Facts about a machine: the probes collect them, the checks judge them. Facts are plain values, so that a test can
// describe any machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace slackline::cli::doctor {

// Limits of this process and of the processes that it starts; nullopt: no limit.
struct LimitFacts {
  std::optional<uint64_t> descriptors;
  std::optional<uint64_t> locked_bytes;
  // Number of processes and threads of the user.
  std::optional<uint64_t> threads;
  std::optional<uint64_t> address_bytes;
};

struct MemoryFacts {
  uint64_t machine_bytes = 0;
  uint64_t available_bytes = 0;
  // Smallest memory limit of the control groups that this process is in, and the memory that the group with that limit
  // uses.
  std::optional<uint64_t> group_bytes;
  uint64_t group_used_bytes = 0;
  // "always", "madvise", "never"; empty: not known.
  std::string huge_pages;
  // Reason why no memory can be shared between processes; OK if it can.
  absl::Status sharing;
  // Size of /dev/shm; 0: there is none.
  uint64_t shm_bytes = 0;
};

struct ProcessorFacts {
  // Hardware threads that this process may use.
  uint32_t threads = 1;
  uint32_t threads_per_core = 1;
  // Processor time that the control groups allow, in threads.
  std::optional<double> group_threads;
  // "performance", "powersave"; empty: not known.
  std::string governor;
};

struct ClockFacts {
  // False if the kernel does not say whether the clock is synchronised.
  bool known = false;
  bool synchronised = false;
  absl::Duration error_max;
};

// Words in DiskFacts::purpose.
inline constexpr char kRunFolderPurpose[] = "run folder";
inline constexpr char kSnapshotsPurpose[] = "snapshots";

// A folder that a run writes to.
struct DiskFacts {
  // Example: "run folder, snapshots"
  std::string purpose;
  // Folder as the job names it, and the nearest folder that exists (itself or a parent), which was tried.
  std::string path;
  std::string tried;
  // Reason why the folder cannot be written to; the fields from write_mb_per_s on are not known then.
  absl::Status writable;
  // Examples: "ext4", "nfs", "tmpfs"; otherwise the number that the kernel reports.
  std::string file_system;
  uint64_t free_bytes = 0;
  double write_mb_per_s = 0;
  // Time to write, sync and rename a small file.
  absl::Duration sync_median;
  absl::Duration sync_max;
  // Results of locks by flock(2) (`locks`) and by fcntl(2) (`record_locks`), and of replacing a file (`renames`).
  absl::Status locks;
  absl::Status record_locks;
  absl::Status renames;
};

struct PortFacts {
  // Address at which other machines will reach this one.
  std::string address;
  // Reasons why the machine cannot listen on its address, and on network.metrics_port; OK if it can.
  absl::Status listening;
  absl::Status metrics_port;
  // Numbers of ports in network.ports, and of free ones among them, counted only up to the number that is needed.
  uint32_t range_size = 0;
  uint32_t range_free = 0;
};

// Properties of a connection between two processes, on one machine or two.
struct LinkFacts {
  absl::Duration round_trip;
  double to_mb_per_s = 0;
  double from_mb_per_s = 0;
  // Clock of the other machine minus our clock; exact to within half a round trip.
  absl::Duration clock_ahead;
};

struct GpuFacts {
  std::vector<std::string> names;
  // Version of the driver; empty: no driver was found.
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
