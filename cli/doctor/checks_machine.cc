#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/words.h"
#include "common/device.h"

namespace slackline::cli::doctor {
namespace {

// As ps/service/shard_table_install.cc has it.
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

}  // namespace slackline::cli::doctor
