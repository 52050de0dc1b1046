// Seeds of a random search: how many a program tries, and from which on.
#pragma once

#include <cstdint>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace slackline {

class Seeds {
 public:
  explicit Seeds(uint64_t count) : count_(count) {}

  // Reads the program's arguments: --seed=N tries this one alone, or is the first if `count_option` ("--worlds=")
  // follows it; a search ends at --until=SECONDS since 1970, if that is not 0. Returns false and prints why if there is
  // another argument.
  bool Read(int argc, char** argv, const char* count_option) {
    for (int i = 1; i < argc; ++i) {
      absl::string_view text = argv[i];
      int64_t until = 0;
      if (absl::ConsumePrefix(&text, "--until=") && absl::SimpleAtoi(text, &until)) {
        if (until > 0) until_ = absl::FromUnixSeconds(until);
      } else if (absl::ConsumePrefix(&text, "--seed=") && absl::SimpleAtoi(text, &first_)) {
        count_ = 1;
      } else if (!absl::ConsumePrefix(&text, count_option) || !absl::SimpleAtoi(text, &count_)) {
        std::fprintf(stderr, "found the argument %s; allowed are %sN, --seed=N and --until=SECONDS\n", argv[i],
                     count_option);
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
