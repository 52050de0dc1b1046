// Whether a process can use its files, so that what is wrong with them is said by name before anybody connects.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/security/role.h"
#include "job.pb.h"

namespace slackline::security {

// The files of `identity` in `folder`, with those of the authority, at the time `now`.
//   kNotFound, kPermissionDenied  as ReadSecret()
//   kInvalidArgument              not PEM; the key is another one's; another job or role; expired, or not valid yet;
//   signed by somebody else
absl::Status CheckPair(const std::string& folder, const Identity& identity, absl::Time now);

// All that security.* names of this job and that is on this machine, for `slackline check`: with tls the files of at
// least one role.
absl::Status CheckCredentials(const job::Job& job, absl::Time now);

}  // namespace slackline::security
