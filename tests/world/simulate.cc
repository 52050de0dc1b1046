// Runs very many worlds and reports what happened in them: the soak of tests/world. bench/README.md says how it is
// used.
//
//   simulate [--seeds=N] [--first=S] [--jobs=J] [--faults=BITS] [--faults_ms=MS] [--keeps=snapshots|backups]
//            [--trace]
//
// Exit codes: 0 if all held in every world; 1 otherwise; 2 wrong use.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/log/logging.h"
#include "tests/world/options.h"

namespace slackline::world {
namespace {

// What one job hands back, in one write.
struct Part {
  Counts counts;
  uint64_t failed = 0;
  uint64_t first_failed = 0;
};

struct Flags {
  uint64_t seeds = 10000, first = 1;
  uint32_t jobs = 1, faults = kAllFaults, faults_ms = 8000;
  Keeps keeps = Keeps::kDrawn;
  bool trace = false;
};

Options OptionsOf(const Flags& flags, uint64_t seed) {
  Options options;
  options.seed = seed;
  options.faults = flags.faults;
  options.faults_for = absl::Milliseconds(flags.faults_ms);
  options.keeps = flags.keeps;
  options.trace = flags.trace;
  return options;
}

// Every jobs-th seed, from this one on.
Part PlayPart(const Flags& flags, uint32_t job) {
  Part part;
  for (uint64_t i = job; i < flags.seeds; i += flags.jobs) {
    const Outcome outcome = Play(OptionsOf(flags, flags.first + i));
    part.counts.Add(outcome.counts);
    if (flags.trace) std::printf("%s%s\n", outcome.trace.c_str(), outcome.description.c_str());
    if (outcome.violation.empty()) continue;
    std::printf("%s\n  %s\n", outcome.violation.c_str(), outcome.description.c_str());
    std::fflush(stdout);
    if (part.failed++ == 0) part.first_failed = flags.first + i;
  }
  return part;
}

// A process each: what one of them does to its memory is no other's.
bool PlayAll(const Flags& flags, std::vector<Part>& parts) {
  std::vector<int> pipes;
  for (uint32_t job = 0; job < flags.jobs; ++job) {
    int ends[2];
    if (::pipe(ends) != 0) return false;
    const pid_t child = ::fork();
    if (child < 0) return false;
    if (child == 0) {
      const Part part = PlayPart(flags, job);
      ::_exit(::write(ends[1], &part, sizeof(part)) == sizeof(part) ? 0 : 1);
    }
    ::close(ends[1]);
    pipes.push_back(ends[0]);
  }
  bool whole = true;
  for (const int pipe : pipes) {
    whole = ::read(pipe, &parts.emplace_back(), sizeof(Part)) == sizeof(Part) && whole;
    ::close(pipe);
  }
  for (uint32_t job = 0; job < flags.jobs; ++job) whole = ::wait(nullptr) > 0 && whole;
  return whole;
}

bool Read(absl::string_view argument, Flags& flags) {
  const auto number = [&](absl::string_view name, auto& value) {
    absl::string_view text = argument;
    return absl::ConsumePrefix(&text, name) && absl::SimpleAtoi(text, &value);
  };
  flags.trace = flags.trace || argument == "--trace";
  if (argument == "--keeps=snapshots") flags.keeps = Keeps::kSnapshots;
  if (argument == "--keeps=backups") flags.keeps = Keeps::kBackups;
  return argument == "--trace" || argument == "--keeps=snapshots" || argument == "--keeps=backups" ||
         number("--seeds=", flags.seeds) || number("--first=", flags.first) ||
         (number("--jobs=", flags.jobs) && flags.jobs >= 1 && flags.jobs <= 1024) ||
         number("--faults=", flags.faults) || number("--faults_ms=", flags.faults_ms);
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (Read(argv[i], flags)) continue;
    std::fprintf(stderr,
                 "found '%s'; allowed are --seeds=N, --first=N, --jobs=1..1024, --faults=BITS, --faults_ms=N, "
                 "--keeps=snapshots|backups, --trace\n",
                 argv[i]);
    return 2;
  }
  log::Initialise("simulate", log::Least::kNothing);
  const absl::Time begin = absl::Now();
  std::vector<Part> parts;
  if (!PlayAll(flags, parts)) {
    std::fprintf(stderr, "a process that played worlds has died\n");
    return 1;
  }
  Part all;
  for (const Part& part : parts) {
    all.counts.Add(part.counts);
    all.failed += part.failed;
    if (part.failed > 0) all.first_failed = std::min(all.first_failed - 1, part.first_failed - 1) + 1;
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  std::printf("%s\n%lu failed; %.1f s, %.0f worlds/s\n", all.counts.Text().c_str(), all.failed, seconds,
              static_cast<double>(flags.seeds) / seconds);
  if (all.failed == 0) return 0;
  std::printf("%s", Explain(OptionsOf(flags, all.first_failed)).c_str());
  return 1;
}

}  // namespace
}  // namespace slackline::world

int main(int argc, char** argv) { return slackline::world::Main(argc, argv); }
