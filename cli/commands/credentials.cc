#include "cli/commands/credentials.h"

#include <cstdio>

#include "absl/time/clock.h"
#include "cli/commands/train.h"
#include "common/security/files.h"
#include "common/security/make_credentials.h"

namespace slackline::cli {
namespace {

// Clocks of machines differ.
constexpr absl::Duration kEarlier = absl::Minutes(10);
constexpr int64_t kDaysByItself = 365;

int WrongUse(const char* message) {
  std::fprintf(stderr, "slackline credentials: %s\n", message);
  return kExitWrongUse;
}

// How long the certificates are to hold from now on.
absl::StatusOr<absl::Duration> LifeOf(const CredentialsOptions& options) {
  if (options.days) return *options.days * absl::Hours(24);
  if (!options.renew) return kDaysByItself * absl::Hours(24);
  const absl::StatusOr<security::Made> made = security::ReadMade(options.folder);
  if (absl::IsNotFound(made.status())) return kDaysByItself * absl::Hours(24);
  if (!made.ok()) return made.status();
  return made->life - kEarlier;
}

absl::Status Make(const CredentialsOptions& options, absl::Duration life) {
  security::MakeOptions make;
  make.folder = options.folder;
  make.job = options.job;
  const absl::Time now = absl::Now();
  make.not_before = now - kEarlier;
  make.not_after = now + life;
  make.force = options.force;
  make.renew = options.renew;
  return security::MakeCredentials(make);
}

absl::Status MakeToken(const std::string& file, bool force) {
  absl::Status made = security::MakeToken(file, force);
  if (made.ok())
    std::printf("Wrote a token. In the job file:\nsecurity: {mode: token, token_file: %s}\n", file.c_str());
  return made;
}

absl::Status MakeCertificates(const CredentialsOptions& options) {
  const absl::StatusOr<absl::Duration> life = LifeOf(options);
  if (!life.ok()) return life.status();
  if (absl::Status made = Make(options, *life); !made.ok()) return made;
  std::printf(
      "Wrote certificates of job %s for the scheduler, servers, workers and operators, valid for %ld days. In the job "
      "file:\n"
      "name: %s\nsecurity: {mode: tls, folder: %s}\n"
      "A machine needs ca.crt, and ROLE.crt and ROLE.key of the roles that run on it. Nobody needs %s to run a job, "
      "only\n"
      "--renew does: keep it where no job runs.\n",
      options.job.c_str(), static_cast<long>(absl::ToInt64Hours(*life) / 24), options.job.c_str(),
      options.folder.c_str(), security::AuthorityKeyPath(options.folder).c_str());
  return absl::OkStatus();
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
  const absl::Status made =
      options.folder.empty() ? MakeToken(options.token_file, options.force) : MakeCertificates(options);
  if (made.ok()) return kExitDone;
  std::fprintf(stderr, "slackline credentials: %s\n", std::string(made.message()).c_str());
  return absl::IsAlreadyExists(made) || absl::IsInvalidArgument(made) ? kExitWrongUse : kExitFailed;
}

}  // namespace slackline::cli
