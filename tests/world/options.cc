#include "tests/world/options.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::world {
namespace {

struct Counter {
  const char* name;
  uint64_t Counts::*count;
};
constexpr Counter kCounters[] = {
    {"worlds", &Counts::worlds},
    {"with backups", &Counts::replicated},
    {"jobs that failed before their shards were safe", &Counts::failed_early},
    {"jobs that failed when a server and its backup were hit", &Counts::failed_twice},
    {"events", &Counts::events},
    {"pushes", &Counts::pushes},
    {"sub-pushes applied", &Counts::applied},
    {"sub-pushes discarded", &Counts::discarded},
    {"sub-pushes lost and reported", &Counts::lost},
    {"pulls", &Counts::pulls},
    {"snapshots", &Counts::snapshots},
    {"snapshots that failed", &Counts::snapshots_failed},
    {"snapshots torn", &Counts::torn},
    {"shards restored", &Counts::restores},
    {"failovers", &Counts::failovers},
    {"failovers in time", &Counts::failovers_timed},
    {"copies compared", &Counts::copies},
    {"crashes of servers", &Counts::server_crashes},
    {"crashes of workers", &Counts::worker_crashes},
    {"crashes of the scheduler", &Counts::scheduler_crashes},
    {"pauses", &Counts::pauses},
    {"partitions", &Counts::partitions},
    {"slow links", &Counts::slow_links},
    {"streams", &Counts::streams},
    {"streams broken", &Counts::streams_broken},
    {"calls", &Counts::calls},
    {"calls lost", &Counts::calls_lost},
    {"calls repeated", &Counts::calls_repeated},
    {"further incarnations of a process", &Counts::rejoins},
    {"workers that came late or left early", &Counts::comings},
    {"servers added", &Counts::servers_added},
    {"servers drained", &Counts::servers_drained},
    {"shards moved", &Counts::moves},
    {"ranges done twice", &Counts::ranges_twice},
    {"virtual ms", &Counts::virtual_ms},
};

}  // namespace

void Counts::Add(const Counts& other) {
  for (const Counter& counter : kCounters) this->*counter.count += other.*counter.count;
}

std::string Counts::Text() const {
  std::string text;
  for (const Counter& counter : kCounters) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", this->*counter.count, " ", counter.name);
  }
  return text;
}

}  // namespace slackline::world
