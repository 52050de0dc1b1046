// Certificates or a token that exist while the bench runs, if --security asks for them.
#pragma once

#include <optional>
#include <string>

#include "bench/exchange/options.h"
#include "bench/support/temporary_folder.h"

namespace slackline::bench {

class Secrets {
 public:
  // Creates the files in a temporary folder and sets options.security_folder.
  explicit Secrets(ExchangeBenchOptions& options);

  // Returns the path of the token in such a folder.
  static std::string TokenFile(const std::string& folder) { return folder + "/token"; }

 private:
  std::optional<TemporaryFolder> folder_;
};

}  // namespace slackline::bench
