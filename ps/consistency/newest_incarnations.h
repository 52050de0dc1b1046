// NewestIncarnations: the newest incarnation of each worker of a set.
#pragma once

#include <algorithm>
#include <map>

#include "common/base/ids.h"

namespace slackline::ps {

class NewestIncarnations {
 public:
  void Note(const Sender& sender) {
    Incarnation& newest = newest_[sender.worker];
    newest = std::max(newest, sender.incarnation);
  }
  // Returns true if this or a newer incarnation of the worker was noted.
  bool Covers(const Sender& sender) const {
    const auto newest = newest_.find(sender.worker);
    return newest != newest_.end() && sender.incarnation <= newest->second;
  }
  const std::map<WorkerId, Incarnation>& all() const { return newest_; }

 private:
  std::map<WorkerId, Incarnation> newest_;
};

}  // namespace slackline::ps
