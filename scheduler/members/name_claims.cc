#include "scheduler/members/name_claims.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/event_log.h"

namespace slackline::scheduler {
namespace {

// "process 1 on node-a"
std::string Describe(const WorkerOrigin& origin) {
  return absl::StrCat("process ", origin.pid, origin.host.empty() ? "" : absl::StrCat(" on ", origin.host));
}

}  // namespace

absl::Status CheckLength(absl::string_view whose, absl::string_view text) {
  constexpr size_t kMost = 256;
  if (text.size() <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(whose, " registers with a text of ", text.size(), " bytes, '",
                                                 absl::CHexEscape(text.substr(0, 32)), "...'; allowed are ", kMost,
                                                 " for its name, its host and its addresses"));
}

Kinship KinshipOf(const WorkerOrigin& one, const WorkerOrigin& other) {
  if (one.instance != 0 && other.instance != 0) {
    return one.instance == other.instance ? Kinship::kSame : Kinship::kOther;
  }
  if (one.pid == 0 || other.pid == 0) return Kinship::kUnknown;
  return one.pid == other.pid && one.host == other.host ? Kinship::kSame : Kinship::kOther;
}

absl::Status NameClaims::Ask(const Holder& holder, const WorkerOrigin& claimant, const std::string& called,
                             absl::Time now) {
  const absl::Duration silent = now - holder.heard;
  if (silent > timeouts_.server_dead()) return absl::OkStatus();
  if (claims_.size() >= kClaimsMax) claims_.clear();
  const std::string who = absl::StrCat(claimant.instance, " ", claimant.pid, " ", claimant.host);
  const absl::Time since = claims_.try_emplace({holder.worker, who}, now).first->second;
  const std::string both =
      absl::StrCat(called, " is there already: ", Describe(holder.origin), ", whose last heartbeat came ",
                   Readable(silent), " ago; this is ", Describe(claimant));
  // A heartbeat of a process that died just before the first question may have been on its way.
  if (holder.heard - since < timeouts_.lease()) {
    return absl::UnavailableError(absl::StrCat(both, ". This one gets the name when nothing is heard of the other for ",
                                               Readable(timeouts_.server_dead())));
  }
  return absl::AlreadyExistsError(
      absl::StrCat(both,
                   ". Both run, and a name belongs to one process: start this one under another name (--name of "
                   "slackline-worker, name= of slackline.Worker), or stop the other"));
}

void NameClaims::Drop(WorkerId holder) {
  std::erase_if(claims_, [&](const auto& claim) { return claim.first.first == holder; });
}

}  // namespace slackline::scheduler
