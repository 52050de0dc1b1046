// Writes an event file for read_events.py: two points on each of two curves.
#include <cstdio>

#include "scheduler/record/event_file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_events FOLDER\n");
    return 2;
  }
  const absl::Time start = absl::FromUnixSeconds(1700000000);
  auto file = slackline::scheduler::EventFile::Create(argv[1], start);
  absl::Status status = file.status();
  if (status.ok()) status = (*file)->Add(start + absl::Seconds(1), 10, {{"train/loss", 2.25}, {"test/accuracy", 0.5}});
  if (status.ok()) status = (*file)->Add(start + absl::Seconds(2), 20, {{"train/loss", 1.5}, {"test/accuracy", 0.75}});
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
