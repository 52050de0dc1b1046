// HttpPost: sends documents to an HTTP server, one after the other over a connection that is kept. Only the
// implementation uses libcurl.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace slackline {

// Thread-safety: none.
class HttpPost {
 public:
  // `address` is that of CheckServerAddress(), with the whole path. `type` is the Content-Type.
  HttpPost(std::string address, const std::string& type, absl::Duration timeout);
  HttpPost(const HttpPost&) = delete;
  HttpPost& operator=(const HttpPost&) = delete;
  ~HttpPost();

  // Sends a document. Follows no redirections.
  //   kUnavailable         worth another attempt: no answer within the timeout, or 429, 502, 503 or 504
  //   kFailedPrecondition  the server answers with another code than 200 to 299
  absl::Status Send(const std::string& document);

 private:
  struct Connection;

  const std::string address_;
  const std::unique_ptr<Connection> connection_;
};

}  // namespace slackline
