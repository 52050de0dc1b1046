#include "bench/exchange/secrets.h"

#include "absl/time/clock.h"
#include "bench/exchange/data_path.h"
#include "bench/support/process.h"
#include "common/security/make_credentials.h"

namespace slackline::bench {

Secrets::Secrets(ExchangeBenchOptions& options) {
  if (options.security == "none") return;
  const std::string folder = folder_.emplace().path();
  options.security_folder = folder;
  const absl::Time now = absl::Now();
  const security::MakeOptions make = {
      .folder = folder, .job = kBenchJobName, .not_before = now - absl::Hours(1), .not_after = now + absl::Hours(24)};
  ExitOnError(options.security == "tls" ? security::MakeCredentials(make)
                                        : security::MakeToken(TokenFile(folder), /*force=*/false));
}

}  // namespace slackline::bench
