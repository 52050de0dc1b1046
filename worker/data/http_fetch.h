// Files of a server that speaks HTTP/1.1, whole or from where a first attempt broke off. libcurl stays behind this
// header.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace slackline::worker {

// As it stands in an address: all but letters, digits, -._~ and the / between its parts as %XX.
std::string EscapedPath(absl::string_view path);

struct HttpOptions {
  // Without a byte, until a connection is given up and another begun.
  absl::Duration silence_max = absl::Seconds(20);
  // Without a byte over all attempts, until the server is.
  absl::Duration give_up = absl::Minutes(2);
};

// Thread-safety: none.
class HttpFetch {
 public:
  explicit HttpFetch(const HttpOptions& options);
  ~HttpFetch();

  // The whole of a small file.
  //   kNotFound            the server says 404
  //   kFailedPrecondition  it says another code that stays, or sends a part without saying which; names the address and
  //                        the code
  //   kDeadlineExceeded    nothing came for options.give_up; says what the last attempt ended with
  //   kResourceExhausted   more than `bytes_max`
  absl::StatusOr<std::string> Get(const std::string& address, uint64_t bytes_max);

  // Appends to the file `path`, which may be there in part, until it has `bytes`. Asks for what is missing; where the
  // server knows no ranges, begins anew.
  //   as Get()
  //   kDeadlineExceeded  also where it takes longer than `total_max`
  //   kDataLoss     the server's file is longer or shorter than `bytes`
  //   kInternal     the file cannot be written; kResourceExhausted  the disk is full
  absl::Status Download(const std::string& address, const std::string& path, uint64_t bytes,
                        absl::Duration total_max = absl::InfiniteDuration());

 private:
  class Session;

  // Attempts until one ends the transfer, or nothing has come for too long.
  absl::Status Insist(const std::string& address, const std::function<absl::Status()>& attempt);

  const HttpOptions options_;
  const std::unique_ptr<Session> session_;
};

}  // namespace slackline::worker
