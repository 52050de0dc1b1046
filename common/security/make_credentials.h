// Makes a job's credentials: an authority of its own, and a key and a certificate for each role.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/role.h"

namespace slackline::security {

struct MakeOptions {
  std::string folder;
  std::string job;
  // Of the roles' certificates; the authority's holds for ten years at least.
  absl::Time not_before;
  absl::Time not_after;
  // Replace what is there.
  bool force = false;
  // Keep the authority that is there, whose key must be there too, and replace what it has signed: processes that run
  // go on to trust one another.
  bool renew = false;
};

// EC keys on P-256. Servers and schedulers get certificates for both ends of a connection, workers and operators for
// the calling end only.
//   kInvalidArgument   no name for a job; or, to be renewed, another one than that of the certificates that are there
//   kAlreadyExists     a file is there, and neither force nor renew allows to replace it; nothing is written
//   kPermissionDenied  the folder is there, and others may look into it
absl::Status MakeCredentials(const MakeOptions& options);

// What the roles' certificates in a folder say.
struct Made {
  std::string job;
  // From their beginning to their end; of several the shortest.
  absl::Duration life = absl::InfiniteDuration();
};

//   kNotFound          there is none
//   kInvalidArgument   one is not of a job, or they are of several
//   kPermissionDenied  others may write one
absl::StatusOr<Made> ReadMade(const std::string& folder);

// A file with a token of 256 random bits.
//   kAlreadyExists  it is there, and not to be replaced
absl::Status MakeToken(const std::string& path, bool force);

}  // namespace slackline::security
