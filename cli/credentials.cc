#include "cli/credentials.h"

#include <cstdio>

#include "absl/time/clock.h"
#include "cli/train.h"
#include "common/security/files.h"
#include "common/security/make_credentials.h"

namespace slackline::cli {
namespace {

// Clocks of machines differ.
constexpr absl::Duration kEarlier = absl::Minutes(10);

int WrongUse(const char* message) {
  std::fprintf(stderr, "slackline credentials: %s\n", message);
  return kExitWrongUse;
}

absl::Status Make(const CredentialsOptions& options) {
  if (!options.token_file.empty()) return security::MakeToken(options.token_file, options.force);
  security::MakeOptions make;
  make.folder = options.folder;
  make.job = options.job;
  make.not_before = absl::Now() - kEarlier;
  make.not_after = absl::Now() + options.days * absl::Hours(24);
  make.force = options.force;
  make.renew = options.renew;
  return security::MakeCredentials(make);
}

void Tell(const CredentialsOptions& options) {
  if (!options.token_file.empty()) {
    std::printf("Wrote a token. In the job file:\nsecurity: {mode: token, token_file: %s}\n",
                options.token_file.c_str());
    return;
  }
  std::printf(
      "Wrote certificates of job %s for the scheduler, servers, workers and operators, valid for %u days. In the job "
      "file:\n"
      "name: %s\nsecurity: {mode: tls, folder: %s}\n"
      "A machine needs ca.crt, and ROLE.crt and ROLE.key of the roles that run on it. Nobody needs %s to run a job, "
      "only\n"
      "--renew does: keep it where no job runs.\n",
      options.job.c_str(), options.days, options.job.c_str(), options.folder.c_str(),
      security::AuthorityKeyPath(options.folder).c_str());
}

}  // namespace

int Credentials(const CredentialsOptions& options) {
  if (options.folder.empty() == options.token_file.empty()) {
    return WrongUse("found both a folder and --token, or neither; allowed is exactly one of them");
  }
  if (!options.folder.empty() && options.job.empty()) {
    return WrongUse("found a folder without --job; allowed is one with the job's name");
  }
  if (options.renew && (options.force || options.folder.empty())) {
    return WrongUse("found --renew with --force or --token; allowed is --renew with a folder alone");
  }
  const absl::Status made = Make(options);
  if (made.ok()) {
    Tell(options);
    return kExitDone;
  }
  std::fprintf(stderr, "slackline credentials: %s\n", std::string(made.message()).c_str());
  return absl::IsAlreadyExists(made) || absl::IsInvalidArgument(made) ? kExitWrongUse : kExitFailed;
}

}  // namespace slackline::cli
