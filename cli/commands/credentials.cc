#include "cli/commands/credentials.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/commands/shared_options.h"
#include "common/security/files.h"
#include "common/security/make_credentials.h"
#include "common/security/revoked.h"
#include "common/text/help.h"

namespace slackline::cli {
namespace {

const HelpText kCredentialsHelp = {
    .example = "slackline credentials credentials --job first --days 30",
    .most_used = "--job --days --renew",
    .groups = {{"Certificates of single workers", "--worker --revoke"},
               {"Other credentials", "--token"},
               {"Replace files", "--force"}},
    .text =
        "Makes certificates and keys for security.mode: tls, or a token for security.mode: token. Only you can read "
        "the files. Existing files stay as they are, unless you give --renew or --force. "
        "`slackline help security` explains what each mode protects.",
    .examples =
        "slackline credentials credentials --job first --renew\n"
        "slackline credentials credentials --job first --worker alice\n"
        "slackline credentials credentials --job first --revoke alice\n"
        "slackline credentials --token job.token"};

struct CredentialsOptions {
  // Folder for certificates and keys, and name of their job. Empty: none are made.
  std::string folder;
  std::string job;
  // Validity of the certificates in days. Absent: a year, or with `renew` the validity of the existing certificates.
  std::optional<uint32_t> days;
  // Worker that gets a certificate of its own, and worker whose certificate is revoked. Empty: none.
  std::string worker;
  std::string revoke;
  // File for a token. Empty: no token is made.
  std::string token_file;
  bool force = false;
  bool renew = false;
};

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

security::MakeOptions OptionsFor(const CredentialsOptions& options, absl::Duration life) {
  security::MakeOptions make;
  make.folder = options.folder;
  make.job = options.job;
  const absl::Time now = absl::Now();
  make.not_before = now - kEarlier;
  make.not_after = now + life;
  make.force = options.force;
  make.renew = options.renew;
  return make;
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
  if (absl::Status made = security::MakeCredentials(OptionsFor(options, *life)); !made.ok()) return made;
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

absl::Status MakeForWorker(const CredentialsOptions& options) {
  const absl::Duration life = options.days.value_or(kDaysByItself) * absl::Hours(24);
  const absl::StatusOr<std::string> made = security::MakeWorkerCredentials(OptionsFor(options, life), options.worker);
  if (!made.ok()) return made.status();
  std::printf(
      "Wrote a certificate of worker %s of job %s, valid for %ld days.\n"
      "Give %s, and nothing else, to who runs this worker. In the job file there:\n"
      "security: {mode: tls, folder: %s}\n"
      "`slackline credentials %s --job %s --revoke %s` takes it back.\n",
      options.worker.c_str(), options.job.c_str(), static_cast<long>(absl::ToInt64Hours(life) / 24), made->c_str(),
      options.worker.c_str(), options.folder.c_str(), options.job.c_str(), options.worker.c_str());
  return absl::OkStatus();
}

absl::Status Revoke(const CredentialsOptions& options) {
  absl::Status revoked = security::RevokeWorker(OptionsFor(options, absl::ZeroDuration()), options.revoke);
  if (!revoked.ok()) return revoked;
  std::printf(
      "Revoked the certificate of worker %s in %s.\n"
      "Copy this file to the security.folder of the scheduler's and the servers' machines: they refuse the worker "
      "within "
      "seconds.\n",
      options.revoke.c_str(), security::RevokedPath(options.folder).c_str());
  return absl::OkStatus();
}

absl::Status Make(const CredentialsOptions& options) {
  if (options.folder.empty()) return MakeToken(options.token_file, options.force);
  if (!options.worker.empty()) return MakeForWorker(options);
  return options.revoke.empty() ? MakeCertificates(options) : Revoke(options);
}

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
  if ((!options.worker.empty() || !options.revoke.empty()) && options.folder.empty()) {
    return WrongUse("found --worker or --revoke with --token; allowed is each of both with a folder");
  }
  if (!options.worker.empty() && (options.force || !options.revoke.empty())) {
    return WrongUse("found --worker with --force or --revoke; allowed is --worker alone, or with --renew or --days");
  }
  if (!options.revoke.empty() && (options.renew || options.days)) {
    return WrongUse("found --revoke with --renew or --days; allowed is --revoke alone, or with --force");
  }
  const absl::Status made = Make(options);
  if (made.ok()) return kExitDone;
  std::fprintf(stderr, "slackline credentials: %s\n", std::string(made.message()).c_str());
  const bool wrong = absl::IsAlreadyExists(made) || absl::IsInvalidArgument(made) || absl::IsNotFound(made);
  return wrong ? kExitWrongUse : kExitFailed;
}

}  // namespace

AddedCommand AddCredentials(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<CredentialsOptions>();
  CLI::App* command = app.add_subcommand("credentials", "Make certificates and keys, or a token, for a job");
  command->add_option("DIR", options->folder,
                      "Folder for certificates and keys: a new one, or one that only you may read");
  command->add_option("--job", options->job, "Name of the job, as in the job file")->type_name("NAME");
  command
      ->add_option("--days", options->days,
                   "Days until the certificates expire. Default: 365, or as before with --renew")
      ->check(CLI::Range(1, 36500));
  command
      ->add_option("--worker", options->worker,
                   "Make a certificate for this worker alone, which can be revoked, in DIR/workers/NAME")
      ->type_name("NAME");
  command->add_option("--revoke", options->revoke, "Revoke the certificate of this worker: add its name to DIR/revoked")
      ->type_name("NAME");
  command->add_option("--token", options->token_file, "Make a token in this file, instead of certificates")
      ->type_name("FILE");
  command->add_flag("--renew", options->renew,
                    "Replace keys and certificates, and keep the authority that signs them. A running job continues");
  command->add_flag("--force", options->force,
                    "Replace everything, also the authority. With --revoke: also a name that has no folder");
  SetHelp(*command, kCredentialsHelp);
  return {command, [options] { return Credentials(*options); }};
}

}  // namespace slackline::cli
