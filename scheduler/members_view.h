// What monitoring sees of a job's members.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace slackline::scheduler {

// A Prometheus endpoint of the job.
struct ScrapeTarget {
  std::string address;  // host:port
  std::string process;
  std::string role;  // server, worker, scheduler

  friend auto operator<=>(const ScrapeTarget&, const ScrapeTarget&) = default;
};

struct MembersView {
  // Workers whose clocks are named one by one.
  static constexpr size_t kNamedClocksMax = 64;

  // starting, training, done, failed, stopped
  std::string job_state;
  // By their state, every state with its number: those of ToString(); of servers besides backup, catching_up (a backup
  // that is not in step), joining (no shards yet).
  std::map<std::string, uint64_t> workers;
  std::map<std::string, uint64_t> servers;
  // That the job wants.
  uint64_t workers_wanted = 0;
  uint64_t servers_wanted = 0;
  uint64_t backups_wanted = 0;
  // Of all epochs.
  uint64_t samples_done = 0;
  uint64_t samples_total = 0;
  uint64_t events = 0;
  // Of live workers, by name: the first ones by number.
  std::map<std::string, uint64_t> clocks;
};

}  // namespace slackline::scheduler
