#include "cli/doctor/probe_system.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/doctor/control_groups.h"
#include "common/process/dynamic_library.h"

namespace slackline::cli::doctor {
namespace {

namespace fs = std::filesystem;

// Declares functions as nvml.h does; each returns 0 for success.
void AskNvml(GpuFacts& facts) {
  const DynamicLibrary nvml("libnvidia-ml.so.1");
  auto* init = nvml.Find<int()>("nvmlInit_v2");
  auto* shutdown = nvml.Find<int()>("nvmlShutdown");
  auto* driver = nvml.Find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  auto* count = nvml.Find<int(unsigned*)>("nvmlDeviceGetCount_v2");
  auto* device = nvml.Find<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
  auto* device_name = nvml.Find<int(void*, char*, unsigned)>("nvmlDeviceGetName");
  if (!init || !shutdown || !driver || !count || !device || !device_name || init() != 0) return;
  char text[128] = "";
  if (driver(text, sizeof(text)) == 0) facts.driver = text;
  unsigned devices = 0;
  if (count(&devices) != 0) devices = 0;
  for (unsigned i = 0; i < devices; ++i) {
    void* handle = nullptr;
    if (device(i, &handle) == 0 && device_name(handle, text, sizeof(text)) == 0) facts.names.push_back(text);
  }
  shutdown();
}

// 22803 is 2.28.3; before 2.9 it was 2804 for 2.8.4.
std::string NcclVersion() {
  const DynamicLibrary nccl("libnccl.so.2");
  auto* version = nccl.Find<int(int*)>("ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) return "";
  const int thousand = number >= 10000 ? 10000 : 1000;
  return absl::StrCat(number / thousand, ".", number % thousand / 100, ".", number % 100);
}

// Returns nothing if no driver is loaded. `root` is the folder that has proc: "/", except in tests.
GpuFacts ProbeGpu(const std::filesystem::path& root) {
  GpuFacts facts;
  std::error_code error;
  // A machine without the driver has no NVML, and nothing for NCCL to run on.
  if (!std::filesystem::exists(root / "proc/driver/nvidia", error)) return facts;
  AskNvml(facts);
  facts.nccl = NcclVersion();
  return facts;
}

std::string ReadSmall(const fs::path& path) {
  std::ifstream in(path);
  return std::string(absl::StripAsciiWhitespace(std::string(std::istreambuf_iterator<char>(in), {})));
}

// Of "Name:  123 kB" in a file of such lines; 0 where it is not there.
uint64_t NumberOf(const std::string& text, const std::string& name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, absl::StrCat(name, ":"))) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t number = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &number)) return number;
  }
  return 0;
}

std::optional<uint64_t> Limit(int resource) {
  rlimit limit = {};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

// Threads of all processes of this user.
uint64_t UserThreads(const fs::path& root) {
  uint64_t threads = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "proc", error)) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), absl::ascii_isdigit)) continue;
    struct stat of = {};
    if (::stat(entry.path().c_str(), &of) != 0 || of.st_uid != ::getuid()) continue;
    threads += NumberOf(ReadSmall(entry.path() / "status"), "Threads");
  }
  return threads;
}

// Whether memory can be made that two processes map, as workers and servers of one host do.
absl::Status TrySharing() {
  const int fd = ::memfd_create("slackline-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("memfd_create: ", ::strerror(errno)));
  absl::Status status;
  if (::ftruncate(fd, 4096) != 0) {
    status = absl::UnavailableError(absl::StrCat("ftruncate: ", ::strerror(errno)));
  } else if (void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); at == MAP_FAILED) {
    status = absl::UnavailableError(absl::StrCat("mmap: ", ::strerror(errno)));
  } else {
    ::munmap(at, 4096);
  }
  ::close(fd);
  return status;
}

ClockFacts ProbeClock() {
  timex now = {};  // modes 0: only asks
  const int state = ::adjtimex(&now);
  if (state < 0) return {};
  return {.known = true,
          .synchronised = state != TIME_ERROR && (now.status & STA_UNSYNC) == 0,
          .error_max = absl::Microseconds(now.maxerror)};
}

bool HasEntries(const fs::path& folder) {
  std::error_code error;
  return fs::directory_iterator(folder, error) != fs::directory_iterator();
}

}  // namespace

MemoryFacts ProbeMemory(const fs::path& root) {
  MemoryFacts facts;
  const std::string text = ReadSmall(root / "proc/meminfo");
  facts.machine_bytes = NumberOf(text, "MemTotal") << 10;
  facts.available_bytes = NumberOf(text, "MemAvailable") << 10;
  const GroupLimits groups = ReadGroupLimits(root);
  facts.group_bytes = groups.memory_bytes;
  facts.group_used_bytes = groups.memory_used_bytes;
  // "always [madvise] never": the one in brackets is chosen.
  const std::string pages = ReadSmall(root / "sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = pages.find('['), close = pages.find(']');
  if (open != std::string::npos && close > open) facts.huge_pages = pages.substr(open + 1, close - open - 1);
  facts.sharing = TrySharing();
  struct statvfs shm = {};
  if (::statvfs((root / "dev/shm").c_str(), &shm) == 0) facts.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  return facts;
}

ProcessorFacts ProbeProcessor(const fs::path& root) {
  ProcessorFacts facts;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (::sched_getaffinity(0, sizeof(mine), &mine) == 0) facts.threads = static_cast<uint32_t>(CPU_COUNT(&mine));
  facts.group_threads = ReadGroupLimits(root).processor_threads;
  const fs::path cpu = root / "sys/devices/system/cpu/cpu0";
  facts.governor = ReadSmall(cpu / "cpufreq/scaling_governor");
  // "0,4" or "0-1": the hardware threads of one core.
  uint32_t siblings = 0;
  for (const absl::string_view part : absl::StrSplit(ReadSmall(cpu / "topology/thread_siblings_list"), ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    uint32_t low = 0, high = 0;
    if (!absl::SimpleAtoi(ends.front(), &low) || !absl::SimpleAtoi(ends.back(), &high) || high < low) continue;
    siblings += high - low + 1;
  }
  facts.threads_per_core = std::max(1u, siblings);
  return facts;
}

std::string ProbeContainer(const fs::path& root) {
  std::error_code error;
  if (fs::exists(root / "var/run/secrets/kubernetes.io", error)) return "kubernetes";
  if (fs::exists(root / ".singularity.d", error)) return "apptainer";
  if (fs::exists(root / ".dockerenv", error)) return "docker";
  if (fs::exists(root / "run/.containerenv", error)) return "podman";
  const std::string groups = ReadSmall(root / "proc/1/cgroup");
  for (const char* word : {"kubepods", "docker", "containerd", "lxc"}) {
    if (absl::StrContains(groups, word)) return word;
  }
  return "";
}

SystemFacts ProbeSystem(const fs::path& root) {
  SystemFacts facts;
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof(host) - 1);
  facts.host = host;
  facts.container = ProbeContainer(root);
  facts.root = ::geteuid() == 0;
  facts.user_threads = UserThreads(root);
  facts.infiniband = HasEntries(root / "sys/class/infiniband");
  facts.limits = {.descriptors = Limit(RLIMIT_NOFILE),
                  .locked_bytes = Limit(RLIMIT_MEMLOCK),
                  .threads = Limit(RLIMIT_NPROC),
                  .address_bytes = Limit(RLIMIT_AS)};
  facts.memory = ProbeMemory(root);
  facts.processor = ProbeProcessor(root);
  facts.clock = ProbeClock();
  facts.gpu = ProbeGpu(root);
  return facts;
}

}  // namespace slackline::cli::doctor
