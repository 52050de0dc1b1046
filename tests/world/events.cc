#include "tests/world/events.h"

namespace slackline::world {

void Events::GoOn(LifeId life) {
  const auto found = lives_.find(life);
  if (found == lives_.end() || !found->second.stopped) return;
  found->second.stopped = false;
  for (What& what : std::exchange(found->second.waiting, {})) After(absl::ZeroDuration(), life, std::move(what));
}

bool Events::Next() {
  if (queue_.empty()) return false;
  // A priority queue lets nothing be moved out of it.
  Event event = std::move(const_cast<Event&>(queue_.top()));
  queue_.pop();
  if (event.at > Now()) time_.Advance(event.at - Now());
  if (event.life != 0) {
    const auto life = lives_.find(event.life);
    if (life == lives_.end()) return true;
    if (life->second.stopped) {
      life->second.waiting.push_back(std::move(event.what));
      return true;
    }
  }
  ++played_;
  event.what();
  return true;
}

}  // namespace slackline::world
