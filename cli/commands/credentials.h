// `slackline credentials`: makes the files that the `security` section of a job names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace slackline::cli {

struct CredentialsOptions {
  // Folder for certificates and keys, and name of their job. Empty: none are made.
  std::string folder;
  std::string job;
  // Validity of the certificates in days. Absent: a year, or with `renew` the validity of the existing certificates.
  std::optional<uint32_t> days;
  // File for a token. Empty: no token is made.
  std::string token_file;
  bool force = false;
  bool renew = false;
};

// Makes the credentials. Returns the exit code.
int Credentials(const CredentialsOptions& options);

}  // namespace slackline::cli
