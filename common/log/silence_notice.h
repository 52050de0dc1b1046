// Logs that a peer does not answer, while the caller keeps trying.
#pragma once

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/log/logging.h"

namespace slackline {

// Thread-safety: none.
class SilenceNotice {
 public:
  // `peer` is the name in the log line. The caller began at `now` and gives up after `total`.
  SilenceNotice(std::string peer, absl::Time now, absl::Duration total)
      : peer_(std::move(peer)), since_(now), next_(now + kEvery), total_(total) {}

  // Call it after each attempt without an answer. Logs once every kEvery. `why` is the known reason of the last
  // failure.
  void NoAnswer(absl::Time now, absl::string_view why = {}) {
    if (now < next_) return;
    next_ = now + kEvery;
    log::Warning("no answer from ", peer_, " since ", absl::ToInt64Seconds(now - since_), " s; gives up after ",
                 absl::ToInt64Seconds(total_), " s", why.empty() ? "" : ": ", why);
  }

 private:
  static constexpr absl::Duration kEvery = absl::Seconds(5);

  const std::string peer_;
  const absl::Time since_;
  absl::Time next_;
  const absl::Duration total_;
};

}  // namespace slackline
