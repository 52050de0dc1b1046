// Writes an event file into the folder named, for a reader of another project: value(step) = step / 4.
#include <cstdio>

#include "scheduler/record/event_file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto file = slackline::scheduler::EventFile::Create(argv[1], absl::FromUnixSeconds(1700000000));
  for (uint64_t step = 0; file.ok() && step < 100; ++step) {
    const double value = static_cast<double>(step) / 4;
    const absl::Status added = (*file)->Add(absl::FromUnixSeconds(1700000000 + static_cast<int64_t>(step)), step,
                                            {{"train/loss", value}, {"test/accuracy", -value}});
    if (!added.ok()) file = added;
  }
  // A histogram of 3 x 0, 1 x 2, and a picture of two classes: the first is always right, the second half.
  const absl::Time later = absl::FromUnixSeconds(1700000200);
  const slackline::scheduler::Distribution values = {
      .limits = {0.5, 1.5, 2.5}, .counts = {3, 0, 1}, .min = 0, .max = 2, .number = 4, .sum = 2, .sum_squares = 4};
  if (file.ok()) {
    if (absl::Status added = (*file)->AddHistogram(later, 7, "asynchrony/staleness", values); !added.ok()) file = added;
  }
  if (file.ok()) {
    const auto image = slackline::scheduler::DrawConfusion({10, 0, 5, 5});
    if (absl::Status added = (*file)->AddImage(later, 8, "test/confusion", *image); !added.ok()) file = added;
  }
  if (file.ok()) return 0;
  std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
  return 1;
}
