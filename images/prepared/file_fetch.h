// FileFetch: gets files from a file server, over HTTP, HTTPS or FTP. A download resumes at the byte where an earlier
// attempt stopped. Only the implementation uses libcurl.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "images/base/fetch_watch.h"

namespace slackline::images {

// Escapes a path for an address: every character except letters, digits, -._~ and the / between parts becomes %XX.
std::string EscapedPath(absl::string_view path);

struct FetchOptions {
  // Silence after which a connection is closed and another one opened.
  absl::Duration silence_max = absl::Seconds(20);
  // Silence over all attempts after which the server is given up.
  absl::Duration give_up = absl::Minutes(2);
  // File with the authorities, in PEM, that may have signed the certificate of an HTTPS server. Empty: the system's.
  std::string ca_file = {};
  // Ends any transfer early; may be null.
  FetchWatch watch = nullptr;
};

// FileFetch gets files from servers and retries broken transfers. Addresses are those of CheckServerAddress(). An HTTPS
// server must have a certificate for its host from a trusted authority, and cannot redirect to a server without TLS.
// FTP servers are asked as anonymous, in passive mode.
//
// Thread-safety: none.
class FileFetch {
 public:
  explicit FileFetch(const FetchOptions& options);
  ~FileFetch();

  struct Limits {
    // Longest time for the whole transfer.
    absl::Duration total_max = absl::InfiniteDuration();
    // Ends the transfer early; may be null.
    FetchWatch watch = nullptr;
  };
  // Gets a file into memory.
  //   as options.watch and limits.watch
  //   kNotFound            the server has no such file
  //   kFailedPrecondition  the server's certificate or options.ca_file is refused; the server refuses the login,
  //   answers
  //                        another permanent code, or sends a part without its range; names the address
  //   kDeadlineExceeded    nothing arrived for options.give_up, or it takes longer than limits.total_max; says how the
  //                        last attempt ended
  //   kResourceExhausted   the file has more than `bytes_max` bytes
  absl::StatusOr<std::string> Get(const std::string& address, uint64_t bytes_max, const Limits& limits);
  absl::StatusOr<std::string> Get(const std::string& address, uint64_t bytes_max) {
    return Get(address, bytes_max, Limits{});
  }

  // Appends to the file `path`, which may hold a part already, until it has `bytes`. Requests only the missing range,
  // or starts over if the server does not support ranges.
  //   as Get()
  //   kDataLoss           the server's file is longer or shorter than `bytes`
  //   kInternal           the file cannot be written
  //   kResourceExhausted  the disk is full
  absl::Status Download(const std::string& address, const std::string& path, uint64_t bytes, const Limits& limits);
  absl::Status Download(const std::string& address, const std::string& path, uint64_t bytes) {
    return Download(address, path, bytes, Limits{});
  }

 private:
  class Session;

  // Repeats attempts until one ends the transfer, or nothing has arrived for too long.
  absl::Status Insist(const std::string& address, const std::function<absl::Status()>& attempt);

  const FetchOptions options_;
  const std::unique_ptr<Session> session_;
};

}  // namespace slackline::images
