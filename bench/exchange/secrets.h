// Certificates or a token for as long as the bench runs, where --security asks for them.
#pragma once

#include "bench/exchange/options.h"

namespace slackline::bench {

class Secrets {
 public:
  // Makes them in a temporary folder, and sets options.security_folder.
  explicit Secrets(ExchangeBenchOptions& options);
  ~Secrets();
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  // Its token in such a folder.
  static std::string TokenFile(const std::string& folder) { return folder + "/token"; }

 private:
  const std::string& folder_;
};

}  // namespace slackline::bench
