// The files that hold a job's credentials.
//
//   FOLDER/ca.crt              the authority that signed all others; every machine needs it
//   FOLDER/ca.key              only for signing more of them: no process needs it
//   FOLDER/ROLE.crt, .key      certificate and key of each role; a machine needs those of the roles that run on it
//   FOLDER/workers/NAME/       such a folder for one worker, with a certificate of its own: ca.crt, worker.crt,
//   worker.key FOLDER/revoked             names of workers whose certificates no longer count, for scheduler and
//   servers
//
// Certificates and keys are PEM. Whoever can read a key can act as its role, so only its owner may be able to read it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/role.h"

namespace slackline::security {

struct KeyPair {
  std::string key;
  std::string certificate;
};

std::string AuthorityPath(const std::string& folder);
std::string AuthorityKeyPath(const std::string& folder);
// Returns the paths of a role's files.
KeyPair PathsOf(const std::string& folder, Role role);

// Returns the text of a file that only its owner may read. As in other programs, a file of root may also be readable by
// its group.
//   kNotFound          names the file
//   kPermissionDenied  names the file, its mode and what is allowed
absl::StatusOr<std::string> ReadSecret(const std::string& path);
// Returns the text of a file that may be public, but that other users may not write.
//   kNotFound          names the file
//   kPermissionDenied  names the file, its owner or mode, and what is allowed
absl::StatusOr<std::string> ReadPublic(const std::string& path);

// Returns the token of a file with one line of 16 to 4096 letters, digits and -._~+/=
absl::StatusOr<std::string> ReadToken(const std::string& path);

// Writes a file that only its owner may read and write, atomically: other processes see the old file or the new one.
//   kAlreadyExists  the file exists and `replace` is false
absl::Status WriteSecret(const std::string& path, const std::string& text, bool replace);

}  // namespace slackline::security
