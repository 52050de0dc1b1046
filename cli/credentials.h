// `slackline credentials`: makes the files that the `security` section of a job names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace slackline::cli {

struct CredentialsOptions {
  // Where certificates and keys go, and of which job they are; empty for none.
  std::string folder;
  std::string job;
  // Of the certificates; absent: a year, or, to be renewed, as those that are there.
  std::optional<uint32_t> days;
  // Where a token goes; empty for none.
  std::string token_file;
  bool force = false;
  bool renew = false;
};

// Returns the exit code.
int Credentials(const CredentialsOptions& options);

}  // namespace slackline::cli
