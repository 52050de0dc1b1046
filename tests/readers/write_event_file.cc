// Writes an event file into the folder named, for a reader of another project: value(step) = step / 4.
#include <cstdio>

#include "scheduler/event_file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto file = slackline::scheduler::EventFile::Create(argv[1], absl::FromUnixSeconds(1700000000));
  for (uint64_t step = 0; file.ok() && step < 100; ++step) {
    const double value = static_cast<double>(step) / 4;
    const absl::Status added = (*file)->Add(absl::FromUnixSeconds(1700000000 + static_cast<int64_t>(step)), step,
                                            {{"train/loss", value}, {"test/accuracy", -value}});
    if (!added.ok()) file = added;
  }
  if (file.ok()) return 0;
  std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
  return 1;
}
