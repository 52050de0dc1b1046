// Certificates or a token that exist while the bench runs, if --security asks for them.
#pragma once

#include "bench/exchange/options.h"

namespace slackline::bench {

class Secrets {
 public:
  // Creates the files in a temporary folder and sets options.security_folder.
  explicit Secrets(ExchangeBenchOptions& options);
  ~Secrets();
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  // Returns the path of the token in such a folder.
  static std::string TokenFile(const std::string& folder) { return folder + "/token"; }

 private:
  const std::string& folder_;
};

}  // namespace slackline::bench
