#include "bench/exchange/secrets.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "absl/time/clock.h"
#include "bench/exchange/data_path.h"
#include "bench/support/process.h"
#include "common/security/make_credentials.h"

namespace slackline::bench {

Secrets::Secrets(ExchangeBenchOptions& options) : folder_(options.security_folder) {
  if (options.security == "none") return;
  std::string folder = std::filesystem::temp_directory_path() / "slackline-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    ExitOnError(absl::UnavailableError("cannot make a temporary folder for --security"));
  }
  options.security_folder = folder;
  const absl::Time now = absl::Now();
  const security::MakeOptions make = {
      .folder = folder, .job = kBenchJobName, .not_before = now - absl::Hours(1), .not_after = now + absl::Hours(24)};
  ExitOnError(options.security == "tls" ? security::MakeCredentials(make)
                                        : security::MakeToken(TokenFile(folder), /*force=*/false));
}

Secrets::~Secrets() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace slackline::bench
