// Creates a job's credentials: an authority for this job, and a key and a certificate for each role.
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
  // Validity of the roles' certificates. The authority's certificate is valid for at least ten years.
  absl::Time not_before;
  absl::Time not_after;
  // True to replace existing files.
  bool force = false;
  // True to keep the existing authority, whose key must be there too, and to replace all that it has signed. Running
  // processes then still trust one another.
  bool renew = false;
};

// Creates the credentials, with EC keys on P-256. Servers and schedulers get certificates for both ends of a
// connection, workers and operators only for the calling end.
//   kInvalidArgument   the job's name is not allowed; or, with renew, differs from that of the existing certificates
//   kAlreadyExists     a file exists, and neither force nor renew is set; nothing is written
//   kPermissionDenied  the folder exists, and other users may look into it
absl::Status MakeCredentials(const MakeOptions& options);

// Creates the folder options.folder/workers/NAME for one worker, with a certificate of its own that RevokedNames can
// revoke. Returns the folder. With options.renew it replaces the worker's key and certificate. Without options.force.
//   kNotFound          there is no authority with its key in options.folder
//   kInvalidArgument   the name is not allowed, or revoked; options.job is not that of the folder's certificates
//   kAlreadyExists     the worker has a certificate, and renew is not set
absl::StatusOr<std::string> MakeWorkerCredentials(const MakeOptions& options, const std::string& name);

// Adds a name to options.folder/revoked. Repeating it changes nothing.
//   kNotFound          the folder has no worker of that name, and options.force is not set
//   kInvalidArgument   the name is not allowed; as ReadRevoked()
absl::Status RevokeWorker(const MakeOptions& options, const std::string& name);

// The content of the roles' certificates in a folder.
struct Made {
  std::string job;
  // Time from the beginning to the end of their validity; the shortest one if they differ.
  absl::Duration life = absl::InfiniteDuration();
};

//   kNotFound          the folder has no certificate
//   kInvalidArgument   a certificate is not of a job, or they are of several jobs
//   kPermissionDenied  other users may write a certificate
absl::StatusOr<Made> ReadMade(const std::string& folder);

// Creates a file with a token of 256 random bits.
//   kAlreadyExists  the file exists and `force` is false
absl::Status MakeToken(const std::string& path, bool force);

}  // namespace slackline::security
