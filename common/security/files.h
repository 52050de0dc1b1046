// The files that hold a job's credentials.
//
//   FOLDER/ca.crt              who signed all others; every machine needs it
//   FOLDER/ca.key              only to sign more of them: not needed by any process
//   FOLDER/ROLE.crt, .key      of each role; a machine needs those of the roles that run on it
//
// Certificates and keys are PEM. Who can read a key is that role, so keys must be their owner's alone.
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
// Where a role's files are.
KeyPair PathsOf(const std::string& folder, Role role);

// The text of a file that only its owner may read. As other programs have it, a group may read what belongs to root.
//   kNotFound          names the file
//   kPermissionDenied  names the file, its mode and what is allowed
absl::StatusOr<std::string> ReadSecret(const std::string& path);
// The text of any file.
//   kNotFound          names the file
absl::StatusOr<std::string> ReadPublic(const std::string& path);

// A token file holds one line of 16 to 4096 letters, digits and -._~+/=
absl::StatusOr<std::string> ReadToken(const std::string& path);

// Writes a file that only its owner may read and write, all at once: others see the old one or the new one.
//   kAlreadyExists  it is there, and may not be `replaced`
absl::Status WriteSecret(const std::string& path, const std::string& text, bool replace);

}  // namespace slackline::security
