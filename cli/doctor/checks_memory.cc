#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/words.h"
#include "common/counted.h"

namespace slackline::cli::doctor {
namespace {

struct Room {
  uint64_t bytes = 0;
  std::string text;
};

// What is free now, on the machine and within the control group.
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

}  // namespace

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

}  // namespace slackline::cli::doctor
