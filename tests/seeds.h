// Seeds of a random search: how many a program tries, and from which on.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace slackline {

class Seeds {
 public:
  explicit Seeds(uint64_t count) : count_(count) {}

  // Reads the program's arguments: --seed=N tries this one alone, or is the first if `count_option` ("--worlds=") follows
  // it; with --while-time a search ends at the time in SLACKLINE_SEARCH_UNTIL (seconds since 1970), if it is set. Returns
  // false and prints why if there is another argument.
  bool Read(int argc, char** argv, const char* count_option) {
    for (int i = 1; i < argc; ++i) {
      absl::string_view text = argv[i];
      if (text == "--while-time") {
        const char* until = std::getenv("SLACKLINE_SEARCH_UNTIL");
        int64_t seconds = 0;
        if (until != nullptr && absl::SimpleAtoi(until, &seconds)) until_ = absl::FromUnixSeconds(seconds);
      } else if (absl::ConsumePrefix(&text, "--seed=") && absl::SimpleAtoi(text, &first_)) {
        count_ = 1;
      } else if (!absl::ConsumePrefix(&text, count_option) || !absl::SimpleAtoi(text, &count_)) {
        std::fprintf(stderr, "found the argument %s; allowed are %sN, --seed=N and --while-time\n", argv[i], count_option);
        return false;
      }
    }
    return true;
  }

  uint64_t first() const { return first_; }
  // Returns true if `seed` is one of the seeds and there is time to try it.
  bool Has(uint64_t seed) const { return !Ends(seed) && absl::Now() < until_; }
  // Returns true if `seed` is the one after the last.
  bool Ends(uint64_t seed) const { return seed == first_ + count_; }

 private:
  uint64_t first_ = 1;
  uint64_t count_;
  absl::Time until_ = absl::InfiniteFuture();
};

}  // namespace slackline
