// Shrinks a failing world to the smallest one that still fails, by kinds of fault and their end.
#include "absl/strings/str_cat.h"
#include "tests/world/options.h"

namespace slackline::world {
namespace {

// Tries these; keeps them if they fail, too.
bool Try(const Options& options, Smallest& smallest) {
  ++smallest.tried;
  if (Play(options).violation.empty()) return false;
  smallest.options = options;
  return true;
}

bool DropOneKind(Smallest& smallest) {
  for (int i = 0; i < kFaults; ++i) {
    Options fewer = smallest.options;
    fewer.faults &= ~(1u << i);
    if (fewer.faults != smallest.options.faults && Try(fewer, smallest)) return true;
  }
  return false;
}

bool EndEarlier(Smallest& smallest) {
  constexpr absl::Duration kLeast = absl::Milliseconds(50);
  for (const double share : {0.25, 0.5, 0.75, 0.9}) {
    Options earlier = smallest.options;
    earlier.faults_for = absl::Trunc(smallest.options.faults_for * share, absl::Milliseconds(1));
    if (smallest.options.faults_for > kLeast && Try(earlier, smallest)) return true;
  }
  return false;
}

}  // namespace

Smallest Shrink(const Options& options) {
  Smallest smallest;
  smallest.options = options;
  while (DropOneKind(smallest) || EndEarlier(smallest)) {
  }
  smallest.options.trace = true;
  smallest.outcome = Play(smallest.options);
  return smallest;
}

std::string Explain(const Options& options) {
  const Outcome outcome = Play(options);
  const Smallest smallest = Shrink(options);
  return absl::StrCat(outcome.violation, "\n  ", outcome.description, "\nThe smallest of ", smallest.tried,
                      " worlds, with ", NamesOf(smallest.options.faults), " for ",
                      absl::FormatDuration(smallest.options.faults_for), " (--seeds=1 --first=", smallest.options.seed,
                      " --faults=", smallest.options.faults,
                      " --faults_ms=", absl::ToInt64Milliseconds(smallest.options.faults_for), "):\n  ",
                      smallest.outcome.violation, "\n  ", smallest.outcome.description, "\n", smallest.outcome.trace);
}

}  // namespace slackline::world
