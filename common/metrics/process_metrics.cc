#include "common/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/text/version_text.h"

namespace slackline {
namespace {

double CpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The fields of /proc/self/stat behind the name, which may have spaces: [0] is the state.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return {};
  return absl::StrSplit(text.substr(name_end + 2), ' ');
}

// In Unix time; 0 where the system does not say.
double StartTime() {
  constexpr size_t kStart = 19;
  const std::vector<std::string> fields = StatFields();
  uint64_t ticks = 0;
  if (fields.size() <= kStart || !absl::SimpleAtoi(fields[kStart], &ticks)) return 0;
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    uint64_t boot = 0;
    if (word == "btime" && file >> boot) {
      return static_cast<double>(boot) + static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
  }
  return 0;
}

double ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  return entries - 3;  // the two dots, and the folder itself
}

}  // namespace

Metrics::Labels ProcessLabels(absl::string_view job, absl::string_view process, absl::string_view role) {
  return {{"slackline_job", std::string(job)}, {"process", std::string(process)}, {"role", std::string(role)}};
}

void AddProcessSeries(Metrics& metrics) {
  metrics.gauge("slackline_build_info", "1; the labels say what was built", {{"version", VersionNumber()}}).Set(1);
  metrics.gauge("process_start_time_seconds", "When the process began, in Unix time").Set(StartTime());
  Counter& cpu = metrics.counter("process_cpu_seconds_total", "Processor time used, of all threads");
  Gauge& memory = metrics.gauge("process_resident_memory_bytes", "Resident memory of the process");
  Gauge& files = metrics.gauge("process_open_fds", "Open file descriptors");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    metrics.gauge("process_max_fds", "File descriptors that may be open").Set(static_cast<double>(limit.rlim_cur));
  }
  metrics.BeforeText([&cpu, &memory, &files] {
    cpu.Add(CpuSeconds() - cpu.value());
    memory.Set(ResidentMemory());
    files.Set(OpenFiles());
  });
}

DiskSeries::DiskSeries(Metrics& metrics, const std::string& room, const std::string& label)
    : free_(metrics.gauge(absl::StrCat("slackline_", room, "_disk_free_bytes"),
                          "Free bytes of the file system that is written to, as it was written to last",
                          {{"folder", label}})),
      size_(metrics.gauge(absl::StrCat("slackline_", room, "_disk_size_bytes"),
                          "Size of the file system that is written to; 0: nothing was written yet",
                          {{"folder", label}})) {}

void DiskSeries::Look(const std::string& folder) {
  struct statvfs disk {};
  if (folder.empty() || statvfs(folder.c_str(), &disk) != 0) return;
  const auto bytes = [&disk](uint64_t blocks) {
    return static_cast<double>(blocks) * static_cast<double>(disk.f_frsize);
  };
  size_.Set(bytes(disk.f_blocks));
  free_.Set(bytes(disk.f_bavail));
}

}  // namespace slackline
