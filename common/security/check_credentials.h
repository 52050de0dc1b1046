// Checks that a process can use its files, so that an error names the file before any connection is made.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/security/role.h"
#include "job.pb.h"

namespace slackline::security {

// Checks the files of `identity` in `folder`, together with those of the authority, at the time `now`.
//   kNotFound, kPermissionDenied  as for ReadSecret()
//   kInvalidArgument              not PEM; the key does not match; another job or role; expired or not valid yet;
//                                 signed by another authority
absl::Status CheckPair(const std::string& folder, const Identity& identity, absl::Time now);

// Checks everything that security.* of this job names and that exists on this machine, for `slackline check`. With tls,
// the files of at least one role must exist.
absl::Status CheckCredentials(const job::Job& job, absl::Time now);

}  // namespace slackline::security
