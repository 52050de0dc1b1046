// Members of a job as monitoring sees them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace slackline::scheduler {

// A Prometheus endpoint of the job.
struct ScrapeTarget {
  std::string address;  // host:port
  std::string process;
  std::string role;  // server, worker or scheduler

  friend auto operator<=>(const ScrapeTarget&, const ScrapeTarget&) = default;
};

struct MembersView {
  // Largest number of workers whose clocks are named one by one.
  static constexpr size_t kNamedClocksMax = 64;

  // State of the job: starting, training, done, failed or stopped.
  std::string job_state;
  // Number of members in each state of ToString(). Servers have three more states: backup, catching_up (a backup that
  // is not in step) and joining (no shards yet).
  std::map<std::string, uint64_t> workers;
  std::map<std::string, uint64_t> servers;
  // Numbers of members that the job wants.
  uint64_t workers_wanted = 0;
  uint64_t servers_wanted = 0;
  uint64_t backups_wanted = 0;
  // Samples of all epochs.
  uint64_t samples_done = 0;
  uint64_t samples_total = 0;
  uint64_t events = 0;
  // Clocks of live workers, by name: those with the smallest worker numbers.
  std::map<std::string, uint64_t> clocks;
  // Metrics endpoints of the members that are present, sorted.
  std::vector<ScrapeTarget> scrape_targets;
};

}  // namespace slackline::scheduler
