#include "worker/own_cores.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/logging.h"
#include "common/thread_cores.h"
#include "worker/job_config.h"

namespace slackline::worker {
namespace {

constexpr uint32_t kSeatsMax = 65536;

struct Seat {
  size_t number = 0;
  uint32_t workers = 1;
};

std::optional<Seat> SeatOf(const job::Job& job, const PlaceOnMachine& place) {
  const auto groups = static_cast<uint32_t>(job.worker().groups_size());
  if (place.seat.empty()) return Seat{place.group, std::max(1u, groups)};
  const std::vector<std::string> parts = absl::StrSplit(place.seat, '/');
  Seat seat;
  const bool numbers =
      parts.size() == 2 && absl::SimpleAtoi(parts[0], &seat.number) && absl::SimpleAtoi(parts[1], &seat.workers);
  if (!numbers || seat.number >= seat.workers || seat.workers > kSeatsMax) return std::nullopt;
  return seat;
}

}  // namespace

absl::StatusOr<CorePlan> TakeCores(const job::Job& job, const PlaceOnMachine& place) {
  const std::optional<Seat> seat = SeatOf(job, place);
  if (!seat) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seat: found '", place.seat, "'; allowed is NUMBER/WORKERS, such as 0/2 for the first of two"));
  }
  auto plan = PlanCores(ThreadCores(), CoreShares(job, {.workers = seat->workers, .gpus = place.gpus}), seat->number);
  if (!plan.ok()) return plan;
  if (!plan->note.empty()) log::Warning(plan->note);
  if (absl::Status bound = BindThread(plan->others); !bound.ok()) return bound;
  if (!plan->compute.empty()) {
    log::Info("computes on cores ", CoresText(plan->compute), "; other threads are on ", CoresText(plan->others));
  }
  return plan;
}

}  // namespace slackline::worker
