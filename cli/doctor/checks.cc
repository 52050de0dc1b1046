#include "cli/doctor/checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/doctor/words.h"
#include "common/base/address.h"
#include "common/job/job_timeouts.h"
#include "common/process/device.h"
#include "common/text/counted.h"

namespace slackline::cli::doctor {
namespace {

// ps/service/shard_table_install.cc has the same limit.
constexpr uint64_t kOtherDescriptors = 128;
// Connections, files and what RocksDB keeps open; a job of 2 servers with 8 shards and 2 workers ran with 64 and not
// with 48.
constexpr uint64_t kDescriptorsOfProcess = 32;
constexpr uint64_t kDescriptorsOfShard = 4;
// Threads of gRPC, LibTorch and Slackline in a process that are not for computing. docs/sizing.md measured 13 to 20.
constexpr uint64_t kThreadsOfProcess = 32;
// A worker maps libraries, its gradients and each server's shards: a small job ran with 8 GiB.
constexpr uint64_t kAddressesOfWorker = uint64_t{16} << 30;

std::string Text(const std::optional<uint64_t>& limit) { return limit ? absl::StrCat(*limit) : "no limit"; }

Finding Descriptors(const LimitFacts& limits, const job::Job& job) {
  const uint64_t workers = job.cluster().workers();
  const uint64_t shards = job.cluster().shards_per_server();
  const uint64_t streams =
      kDescriptorsOfProcess + kDescriptorsOfShard * shards + 2 * (workers + job.cluster().servers());
  const uint64_t shared = kOtherDescriptors + shards + 4 * workers;
  const uint64_t wanted = std::max(streams, shared);
  const std::string found = absl::StrCat(Text(limits.descriptors), " open files a process");
  if (!limits.descriptors || *limits.descriptors >= wanted) return Fine("descriptors", found);
  Finding finding = {Level::kWarning, "descriptors", found, absl::StrCat(wanted, " for this job's servers"),
                     absl::StrCat("ulimit -n ", wanted,
                                  ", or LimitNOFILE= of the service that starts it; with fewer, servers "
                                  "share no memory with workers of their host")};
  if (*limits.descriptors < streams) finding.level = Level::kProblem;
  return finding;
}

Finding Threads(const SystemFacts& system, const job::Job& job, const Load& load) {
  const uint64_t processes = uint64_t{load.servers} + load.workers + 2;
  const uint64_t wanted = processes * kThreadsOfProcess + uint64_t{load.workers} * job.worker().threads();
  const std::string found = absl::StrCat(Text(system.limits.threads), " processes and threads of this user (",
                                         system.user_threads, " are there)");
  // The kernel asks nobody who may do everything.
  if (!system.limits.threads || system.root || *system.limits.threads >= system.user_threads + wanted) {
    return Fine("threads", found);
  }
  return {Level::kProblem, "threads", found, absl::StrCat("about ", wanted, " more"),
          absl::StrCat("ulimit -u ", system.user_threads + wanted, ", or fewer workers on this machine")};
}

Finding LockedMemory(const SystemFacts& system) {
  const std::string found = system.limits.locked_bytes
                                ? absl::StrCat(Bytes(*system.limits.locked_bytes), " may be locked in memory")
                                : "all memory may be locked";
  if (!system.limits.locked_bytes || !system.infiniband) return Fine("memory lock", found);
  return {Level::kWarning, "memory lock", absl::StrCat(found, ", and there is InfiniBand"),
          "no limit, for NCCL over InfiniBand",
          "ulimit -l unlimited, or `* - memlock unlimited` in /etc/security/limits.conf; under SLURM "
          "PropagateResourceLimitsExcept=MEMLOCK"};
}

Finding Addresses(const LimitFacts& limits, const job::Job& job) {
  if (!limits.address_bytes) return Fine("addresses", "a process may use all addresses");
  const std::string found = absl::StrCat("a process may use ", Bytes(*limits.address_bytes), " of addresses");
  if (*limits.address_bytes >= kAddressesOfWorker || job.wire().same_host() != job::Wire::SHARED_MEMORY) {
    return Fine("addresses", found);
  }
  return {
      Level::kWarning, "addresses", found, "no limit: memory is mapped before it is used, and then counts here",
      "ulimit -v unlimited; to bound memory use a control group (SLURM --mem, systemd MemoryMax=, Kubernetes limits)"};
}

struct Room {
  uint64_t bytes = 0;
  std::string text;
};

// Returns the memory that is free now, on the machine and within the control group.
Room FreeRoom(const MemoryFacts& memory) {
  Room room = {memory.available_bytes,
               absl::StrCat(Bytes(memory.available_bytes), " of ", Bytes(memory.machine_bytes), " are available")};
  if (memory.group_bytes) {
    const uint64_t left = *memory.group_bytes - std::min(*memory.group_bytes, memory.group_used_bytes);
    absl::StrAppend(&room.text, "; the control group allows ", Bytes(*memory.group_bytes));
    room.bytes = std::min(room.bytes, left);
  }
  return room;
}

Finding Fits(const MemoryFacts& memory, const job::Job& job, const Load& load) {
  const Room room = FreeRoom(memory);
  const uint64_t parameters = load.parameters.value_or(0);
  const uint64_t wanted = load.servers * ServerBytes(job, parameters) + load.workers * WorkerBytes(job, parameters);
  const std::string of_what =
      absl::StrCat(Counted(load.servers, "server"), " and ", Counted(load.workers, "worker"),
                   load.parameters ? absl::StrCat(" with ", parameters, " parameters") : " without their model");
  if (wanted <= room.bytes)
    return Fine("memory", absl::StrCat(room.text, "; ", of_what, " need about ", Bytes(wanted)));
  return {Level::kProblem, "memory", room.text, absl::StrCat("about ", Bytes(wanted), " for ", of_what),
          "more machines, a larger limit (SLURM --mem, Kubernetes resources), or fewer processes here"};
}

constexpr uint64_t kRoomMin = uint64_t{256} << 20;
// Clocks that are further apart make logs unreadable; certificates are valid from the minute they were made.
constexpr absl::Duration kClocksApartWarning = absl::Seconds(1);
constexpr absl::Duration kClocksApartProblem = absl::Minutes(1);

// Returns the bytes of the checkpoints and snapshots that stay, and of one of each that is being written.
uint64_t RoomFor(const job::Job& job, const Load& load) {
  if (!load.parameters) return kRoomMin;
  uint64_t copies = 1 + job.checkpoint().keep() + job.checkpoint().keep_best();
  if (job.durability().mode() == job::Durability::SNAPSHOT) copies += 1 + job.durability().snapshots_kept();
  return kRoomMin + copies * StateBytes(job, *load.parameters);
}

Finding Space(const DiskFacts& disk, const job::Job& job, const Load& load) {
  const uint64_t wanted = RoomFor(job, load);
  const std::string found = absl::StrCat(Bytes(disk.free_bytes), " free in ", disk.tried, " (", disk.file_system, ")");
  if (disk.free_bytes >= wanted) return Fine("disk", found);
  return {Level::kProblem, "disk", found, absl::StrCat(Bytes(wanted), " for what the job keeps"),
          "another folder (output.folder, durability.folder, checkpoint.folder), or a smaller checkpoint.keep"};
}

// The scheduler saves its state every T / 2, and goes on when that is on disk.
void AddSpeed(const DiskFacts& disk, const job::Job& job, const Load& load, Findings& findings) {
  const absl::Duration most = TimeoutsOf(job).heartbeat / 2;
  const std::string found = absl::StrFormat("writes %.0f MB/s; a small file is synced and replaced in %s, %s at most",
                                            disk.write_mb_per_s, Time(disk.sync_median), Time(disk.sync_max));
  const std::string check = "disk speed";
  if (disk.sync_median > most) {
    findings.push_back({Level::kWarning, check, found,
                        absl::StrCat(Time(most), " to sync (timeouts.heartbeat_ms / 2), for the scheduler's state"),
                        "a local disk for the run folder, or a longer timeouts.heartbeat_ms"});
    return;
  }
  const double state_mb = load.parameters ? 1e-6 * static_cast<double>(StateBytes(job, *load.parameters)) : 0;
  const bool snapshots = job.durability().mode() == job::Durability::SNAPSHOT;
  if (snapshots && state_mb > disk.write_mb_per_s * job.durability().snapshot_every_s()) {
    findings.push_back({Level::kWarning, check, found,
                        absl::StrFormat("%.0f MB/s: a snapshot of the model has %.0f MB",
                                        state_mb / job.durability().snapshot_every_s(), state_mb),
                        "a faster disk for durability.folder, or a longer durability.snapshot_every_s"});
    return;
  }
  findings.push_back(Fine(check, found));
}

void AddMeaning(const DiskFacts& disk, const job::Job& job, Findings& findings) {
  if (!disk.renames.ok()) {
    findings.push_back({Level::kProblem, "disk", absl::StrCat("a file cannot be replaced: ", disk.renames.message()),
                        "rename()", "another folder: what a run keeps there would not be whole after a crash"});
  }
  if (!disk.locks.ok()) {
    findings.push_back({Level::kWarning, "disk", absl::StrCat("locks do not work: ", disk.locks.message()),
                        "flock(), so that two do not look after one run",
                        "mount NFS as version 4, or Lustre with -o flock; else the file lock.held of the run folder "
                        "stands for a lock, "
                        "which stays when its process is killed"});
  }
  // RocksDB takes one by fcntl(2): the scheduler's state is one, and each shard's snapshots.
  const bool databases =
      absl::StrContains(disk.purpose, kRunFolderPurpose) || absl::StrContains(disk.purpose, kSnapshotsPurpose);
  if (job.durability().mode() != job::Durability::NONE && databases && !disk.record_locks.ok()) {
    findings.push_back(
        {Level::kProblem, "disk", absl::StrCat("locks do not work: ", disk.record_locks.message()),
         "fcntl() locks, for the scheduler's state (run folder) and snapshots (durability.folder)",
         "another folder: a local disk, NFS of version 4, Lustre with -o flock; or durability.mode: none"});
  }
  if (disk.file_system == "tmpfs" || disk.file_system == "ramfs") {
    findings.push_back({Level::kWarning, "disk", absl::StrCat(disk.tried, " lies in memory (", disk.file_system, ")"),
                        "a disk",
                        "another folder: what is kept there is gone when the machine is, and takes memory until then"});
  }
}

using Config = std::map<std::string, std::string>;

// Below it a checkpoint of a large model is not whole in time.
constexpr uint32_t kKillWaitS = 30;

// Lines of "Name = value".
Config ParseConfig(const std::string& text) {
  Config config;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (sides.size() != 2) continue;
    config[std::string(absl::StripAsciiWhitespace(sides[0]))] = std::string(absl::StripAsciiWhitespace(sides[1]));
  }
  return config;
}

std::string Value(const Config& config, const std::string& name) {
  const auto found = config.find(name);
  return found == config.end() ? "" : found->second;
}

// Returns 30 for "30 sec"; nullopt if the setting is missing.
std::optional<uint32_t> SecondsOf(const Config& config, const std::string& name) {
  const std::vector<std::string> words = absl::StrSplit(Value(config, name), ' ');
  uint32_t seconds = 0;
  return absl::SimpleAtoi(words[0], &seconds) ? std::optional(seconds) : std::nullopt;
}

Finding Requeue(const Config& config) {
  const std::string value = Value(config, "JobRequeue");
  if (value != "0") return Fine("slurm requeue", absl::StrCat("JobRequeue=", value.empty() ? "not said" : value));
  return {Level::kWarning, "slurm requeue", "JobRequeue=0: jobs are not put back into the queue by themselves",
          "--requeue for this job",
          "`slackline slurm submit` and slurm/slackline.sbatch ask for it; a batch script of your own needs #SBATCH "
          "--requeue"};
}

Finding KillWait(const Config& config, const job::Job& job) {
  const std::optional<uint32_t> seconds = SecondsOf(config, "KillWait");
  if (!seconds) return Skipped("slurm KillWait", "not said");
  const std::string found = absl::StrCat("KillWait=", *seconds, " s");
  if (*seconds >= kKillWaitS) return Fine("slurm KillWait", found);
  return {Level::kWarning, "slurm KillWait", found,
          absl::StrCat(kKillWaitS, " s, for the checkpoint after scancel or a preemption without grace"),
          absl::StrCat("a shorter checkpoint.every_s (", job.checkpoint().every_s(),
                       " s): what was trained since the last one is lost then")};
}

Finding Preemption(const Config& config) {
  const std::string type = Value(config, "PreemptType"), mode = absl::AsciiStrToUpper(Value(config, "PreemptMode"));
  if (type.empty() || absl::StrContains(type, "none")) return Fine("slurm preemption", "none");
  const std::string found = absl::StrCat("PreemptMode=", mode);
  if (absl::StrContains(mode, "REQUEUE")) return Fine("slurm preemption", found);
  if (absl::StrContains(mode, "SUSPEND")) {
    return {Level::kWarning, "slurm preemption", found,
            "REQUEUE: a suspended run counts its members as dead when it goes on",
            "a partition with PreemptMode=REQUEUE or a QOS that is not preempted"};
  }
  if (absl::StrContains(mode, "CANCEL")) {
    return {Level::kWarning, "slurm preemption", found, "REQUEUE: a preempted job is not put back into the queue",
            "a partition or QOS with PreemptMode=REQUEUE; else `slackline slurm submit --resume --run-folder RUN` "
            "afterwards"};
  }
  return Fine("slurm preemption", found);
}

Finding Tracking(const Config& config) {
  const std::string type = Value(config, "ProctrackType");
  if (type.empty() || absl::StrContains(type, "cgroup"))
    return Fine("slurm process tracking", type.empty() ? "not said" : type);
  return {Level::kWarning, "slurm process tracking", type, "proctrack/cgroup, so that no process outlives a job",
          "look after a lost node for processes of slackline that still run; they end by themselves when they hear of "
          "nobody"};
}

Finding NodeTimeout(const Config& config) {
  const std::optional<uint32_t> seconds = SecondsOf(config, "SlurmdTimeout");
  return seconds ? Fine("slurm lost nodes",
                        absl::StrCat("SlurmdTimeout=", *seconds, " s; the run itself goes on after 20 s"))
                 : Skipped("slurm lost nodes", "SlurmdTimeout is not said");
}

}  // namespace

Findings CheckLimits(const SystemFacts& system, const job::Job& job, const Load& load) {
  return {Descriptors(system.limits, job), Threads(system, job, load), LockedMemory(system),
          Addresses(system.limits, job)};
}

Findings CheckProcessors(const ProcessorFacts& processor, const job::Job& job, const Load& load) {
  const double threads = std::min<double>(processor.threads, processor.group_threads.value_or(processor.threads));
  std::string found = absl::StrFormat("%d hardware threads", processor.threads);
  if (processor.group_threads)
    absl::StrAppendFormat(&found, ", of which the control group allows %.1f", *processor.group_threads);
  if (processor.threads_per_core > 1) absl::StrAppend(&found, ", ", processor.threads_per_core, " to a core");
  Findings findings;
  const double wanted = static_cast<double>(load.workers) * std::max(1u, job.worker().threads());
  if (wanted > threads) {
    findings.push_back({Level::kWarning, "processors", found,
                        absl::StrFormat("%.0f: %d workers of %d threads each", wanted, load.workers,
                                        std::max(1u, job.worker().threads())),
                        job.worker().threads() > 1
                            ? "a smaller worker.threads, or 0: more threads than cores are many times slower"
                            : "fewer workers on this machine (cluster.workers)"});
  } else if (processor.group_threads && *processor.group_threads < processor.threads && job.worker().threads() == 0) {
    const int each = std::max(1, static_cast<int>(threads / std::max(1u, load.workers)));
    findings.push_back({Level::kWarning, "processors", found,
                        "worker.threads, since a worker counts the machine's cores",
                        absl::StrCat("--set worker.threads=", each)});
  } else {
    findings.push_back(Fine("processors", found));
  }
  if (processor.governor == "powersave") {
    findings.push_back({Level::kWarning, "governor", "powersave", "performance or schedutil, for steady steps",
                        "cpupower frequency-set -g performance (as root)"});
  } else if (!processor.governor.empty()) {
    findings.push_back(Fine("governor", processor.governor));
  }
  return findings;
}

Findings CheckClock(const ClockFacts& clock) {
  if (!clock.known) return {Skipped("clock", "the kernel does not say whether the clock is synchronised")};
  if (clock.synchronised) {
    return {Fine("clock", absl::StrCat("synchronised, to within ", Time(clock.error_max)))};
  }
  return {{Level::kWarning, "clock", "not synchronised, as far as the kernel knows",
           "a clock that agrees with those of the other machines, for certificates, logs and the ages of snapshots",
           "chrony or systemd-timesyncd; on a virtual machine or in a container the host may see to it"}};
}

Findings CheckContainer(const SystemFacts& system, const job::Job& job) {
  if (system.container.empty()) return {};
  std::string found = absl::StrCat("runs in a container (", system.container, ")");
  if (job.wire().same_host() == job::Wire::SHARED_MEMORY) {
    absl::StrAppend(&found, "; workers and servers share memory only within one network namespace");
  }
  return {Fine("container", found)};
}

Findings CheckGpu(const GpuFacts& gpu, const MemoryFacts& memory, const job::Job& job) {
  std::vector<std::string> devices(job.worker().devices().begin(), job.worker().devices().end());
  for (const job::WorkerGroup& group : job.worker().groups()) {
    devices.insert(devices.end(), group.devices().begin(), group.devices().end());
  }
  const bool wants = absl::c_any_of(devices, [](const std::string& name) { return ParseDevice(name) != Device{}; });
  // All GPUs that are asked for may be none.
  const bool takes_any = absl::c_all_of(
      devices, [](const std::string& name) { return name == kAutoDevices || ParseDevice(name) == Device{}; });
  if (gpu.driver.empty()) {
    if (!wants || takes_any) return {Skipped("gpu", "none here, and the job computes on the CPU")};
    return {{Level::kProblem, "gpu", "no driver of NVIDIA is loaded", "one, for worker.devices or worker.groups",
             "install the driver, or in a container pass the GPUs through (--nv, --gpus all)"}};
  }
  std::string found =
      absl::StrCat("driver ", gpu.driver, ": ", gpu.names.empty() ? "no GPU" : absl::StrJoin(gpu.names, ", "));
  Findings findings = {Fine("gpu", found)};
  if (gpu.nccl.empty() && gpu.names.size() > 1 && wants) {
    findings.push_back({Level::kWarning, "nccl", "found no libnccl.so.2", "NCCL, for several GPUs of one worker",
                        "install libnccl2, or add the folder of NCCL to the library path"});
  } else {
    findings.push_back(gpu.nccl.empty() ? Skipped("nccl", "found no libnccl.so.2; nothing here needs it")
                                        : Fine("nccl", gpu.nccl));
  }
  // NCCL talks between GPUs of a machine through /dev/shm.
  if (wants && gpu.names.size() > 1 && memory.shm_bytes < (uint64_t{1} << 30)) {
    findings.push_back({Level::kWarning, "/dev/shm", Bytes(memory.shm_bytes), "1 GiB, for NCCL between GPUs",
                        "in a container --shm-size=1g, or an emptyDir with medium: Memory"});
  }
  return findings;
}

Findings CheckMemory(const SystemFacts& system, const job::Job& job, const Load& load) {
  Findings findings = {Fits(system.memory, job, load)};
  if (job.wire().same_host() == job::Wire::SHARED_MEMORY && load.workers > 0 && load.servers > 0) {
    if (system.memory.sharing.ok()) {
      findings.push_back(
          Fine("shared memory", "processes of one user can map the same memory (memfd; /dev/shm is not used)"));
    } else {
      findings.push_back({Level::kWarning, "shared memory", std::string(system.memory.sharing.message()),
                          "memory that workers and servers of this machine both map",
                          "allow memfd_create in the container's seccomp profile; without it they use Unix sockets"});
    }
  }
  const std::string& pages = system.memory.huge_pages;
  if (pages == "never") {
    findings.push_back({Level::kWarning, "huge pages", "never", "always or madvise, for large models",
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"});
  } else if (!pages.empty()) {
    findings.push_back(Fine("huge pages", pages));
  }
  return findings;
}

Findings CheckDisk(const DiskFacts& disk, const job::Job& job, const Load& load) {
  if (absl::IsResourceExhausted(disk.writable)) {
    return {{Level::kProblem, "disk",
             absl::StrCat(disk.purpose, ": ", disk.tried, " (", disk.file_system, ") is full, ", Bytes(disk.free_bytes),
                          " were free: ", disk.writable.message()),
             absl::StrCat(Bytes(RoomFor(job, load)), " for what the job keeps in ", disk.path),
             absl::StrCat("make room in ", disk.tried,
                          " (where much is free, a quota may be used up), or choose another folder "
                          "(output.folder, durability.folder, checkpoint.folder)")}};
  }
  if (!disk.writable.ok()) {
    return {{Level::kProblem, "disk", absl::StrCat(disk.purpose, ": ", disk.writable.message()),
             absl::StrCat("a folder ", disk.path, " that can be written"),
             "make it, or choose another (output.folder, durability.folder, checkpoint.folder)"}};
  }
  Findings findings = {Space(disk, job, load)};
  AddSpeed(disk, job, load, findings);
  AddMeaning(disk, job, findings);
  for (Finding& finding : findings) finding.found = absl::StrCat(disk.purpose, ": ", finding.found);
  return findings;
}

Findings CheckPorts(const PortFacts& ports, const job::Job& job, const Load& load) {
  if (!ports.listening.ok()) {
    return {
        {Level::kProblem, "ports", std::string(ports.listening.message()), "an address of this machine to listen on",
         "network.listen or network.interface: the address or the interface of this machine; 0.0.0.0 is all of them"}};
  }
  Findings findings = {Fine("ports", absl::StrCat("can listen on ", ports.address))};
  if (ports.address == "0.0.0.0" || ports.address == "[::]" || ports.address == "::") {
    findings.push_back(
        {Level::kWarning, "address", absl::StrCat("listens on ", ports.address, ", and says so to the others"),
         "an address at which they reach this machine", "--set network.advertise=HOST, or network.interface"});
  }
  if (!ports.metrics_port.ok()) {
    findings.push_back({Level::kProblem, "metrics port", std::string(ports.metrics_port.message()), "a free port",
                        "another network.metrics_port, or 0: then each process chooses one and its log names it"});
  }
  const uint32_t metrics = job.network().metrics() ? 1 : 0;
  const uint32_t own_metrics = job.network().metrics_port() == 0 ? metrics : 0;
  const uint32_t wanted =
      load.servers * (1 + metrics) + load.workers * metrics + (load.scheduler ? 1 + own_metrics : 0);
  if (!job.network().ports().empty() && ports.range_free < wanted) {
    findings.push_back(
        {Level::kProblem, "port range",
         absl::StrCat(ports.range_free, " of the ", ports.range_size, " ports of network.ports are free"),
         absl::StrCat(wanted, ": two for each server and the scheduler, one for each worker"),
         "a larger range, or end what listens there (ss -ltnp)"});
  } else if (!job.network().ports().empty()) {
    findings.push_back(Fine("port range", absl::StrCat("enough of ", job.network().ports(), " are free")));
  }
  return findings;
}

Findings CheckLink(const LinkFacts& link, const std::string& with, const job::Job& job, const Load& load) {
  const std::string check = absl::StrCat("link with ", with);
  const double slower = std::min(link.to_mb_per_s, link.from_mb_per_s);
  const std::string found = absl::StrFormat("%s there and back, %.0f MB/s there, %.0f MB/s back", Time(link.round_trip),
                                            link.to_mb_per_s, link.from_mb_per_s);
  Findings findings;
  const absl::Duration heartbeat = TimeoutsOf(job).heartbeat;
  if (link.round_trip > heartbeat / 2) {
    findings.push_back({Level::kProblem, check, found,
                        absl::StrCat("less than ", Time(heartbeat / 2), " (timeouts.heartbeat_ms / 2)"),
                        "a longer timeouts.heartbeat_ms, or machines that are nearer"});
  } else if (load.parameters) {
    const double megabytes = 4e-6 * static_cast<double>(*load.parameters);
    findings.push_back(
        Fine(check, absl::StrFormat("%s; a push of the whole model in fp32 (%.1f MB) takes %s of it", found, megabytes,
                                    Time(absl::Seconds(megabytes / std::max(1e-3, slower))))));
  } else {
    findings.push_back(Fine(check, found));
  }
  return findings;
}

Finding CheckClocks(const LinkFacts& link, const std::string& whose) {
  const std::string check = absl::StrCat("clock beside ", whose);
  const absl::Duration apart = absl::AbsDuration(link.clock_ahead) - link.round_trip / 2;
  if (apart <= kClocksApartWarning) {
    return Fine(check, absl::StrCat(Time(absl::AbsDuration(link.clock_ahead)), " apart, known to within ",
                                    Time(link.round_trip / 2)));
  }
  return {
      apart > kClocksApartProblem ? Level::kProblem : Level::kWarning, check,
      absl::StrCat(Time(absl::AbsDuration(link.clock_ahead)),
                   link.clock_ahead > absl::ZeroDuration() ? " ahead" : " behind"),
      absl::StrCat("less than ", Time(kClocksApartWarning), " apart, for certificates, logs and the ages of snapshots"),
      "chrony or systemd-timesyncd on both machines"};
}

Findings CheckJob(const JobTrials& facts, const job::Job& job) {
  Findings findings;
  const auto add = [&](const char* check, const absl::Status& status, std::string fine, std::string needed,
                       std::string advice) {
    if (status.ok())
      findings.push_back(Fine(check, std::move(fine)));
    else
      findings.push_back({Level::kProblem, check, std::string(status.message()), std::move(needed), std::move(advice)});
  };
  add("programs", facts.programs, "all are beside this one", "all programs of one build in one folder",
      "in a checkout: cmake --build build/release --target slackline_programs; else install all into one folder");
  if (!facts.devices.ok()) {
    add("devices", facts.devices, "", "the GPUs that the job names, and a build with CUDA",
        "worker.devices: auto or cpu, or programs for GPUs (docs/gpu.md)");
  }
  add("data", facts.data, absl::StrCat("the images in ", job.data().path(), " can be read"),
      "images that every worker can read", "data.path, or apt-get install dataset-fashion-mnist for the default's");
  if (job.security().mode() == job::Security::NONE) {
    findings.push_back(
        IsLoopback(job.network().listen()) && job.network().interface().empty()
            ? Skipped("credentials", "security.mode is none: only this machine is listened to")
            : Finding{
                  Level::kWarning, "credentials", "none, and the job listens on a network", "security.mode: tls",
                  "slackline credentials DIR --job NAME, then security: {mode: tls, folder: DIR}; docs/security.md"});
    return findings;
  }
  if (facts.credentials.ok() && !facts.credentials_soon.ok()) {
    findings.push_back({Level::kWarning, "credentials",
                        absl::StrCat("not valid any more in ", absl::ToInt64Hours(facts.soon) / 24,
                                     " days: ", facts.credentials_soon.message()),
                        "certificates that outlive the run", "slackline credentials DIR --job NAME --renew"});
    return findings;
  }
  add("credentials", facts.credentials, "valid, and only yours", "files that this job can use",
      "slackline credentials; docs/security.md");
  return findings;
}

Findings CheckSlurmConfig(const std::string& text, const job::Job& job) {
  const Config config = ParseConfig(text);
  if (config.empty()) return {Skipped("slurm", "scontrol show config says nothing")};
  return {Requeue(config), KillWait(config, job), Preemption(config), Tracking(config), NodeTimeout(config)};
}

}  // namespace slackline::cli::doctor
