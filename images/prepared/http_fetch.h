// HttpFetch: gets files from an HTTP/1.1 server. A download resumes at the byte where an earlier attempt stopped. Only
// the implementation uses libcurl.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace slackline::images {

// Escapes a path for an address: every character except letters, digits, -._~ and the / between parts becomes %XX.
std::string EscapedPath(absl::string_view path);

struct HttpOptions {
  // Silence after which a connection is closed and another one opened.
  absl::Duration silence_max = absl::Seconds(20);
  // Silence over all attempts after which the server is given up.
  absl::Duration give_up = absl::Minutes(2);
  // Ends transfers once it is true. Borrowed; null: nothing ends them.
  const std::atomic<bool>* stop = nullptr;

  bool stopped() const { return stop != nullptr && stop->load(); }
};

// HttpFetch gets files from servers and retries broken transfers.
//
// Thread-safety: none.
class HttpFetch {
 public:
  explicit HttpFetch(const HttpOptions& options);
  ~HttpFetch();

  // Gets a file into memory.
  //   kCancelled           options.stop became true
  //   kNotFound            the server answers 404
  //   kFailedPrecondition  the server answers another permanent code, or sends a part without its range; names the
  //                        address and the code
  //   kDeadlineExceeded    nothing arrived for options.give_up, or it takes longer than `total_max`; says how the last
  //                        attempt ended
  //   kResourceExhausted   the file has more than `bytes_max` bytes
  absl::StatusOr<std::string> Get(const std::string& address, uint64_t bytes_max,
                                  absl::Duration total_max = absl::InfiniteDuration());

  // Appends to the file `path`, which may hold a part already, until it has `bytes`. Requests only the missing range,
  // or starts over if the server does not support ranges.
  //   as Get()
  //   kDeadlineExceeded   also if the download takes longer than `total_max`
  //   kDataLoss           the server's file is longer or shorter than `bytes`
  //   kInternal           the file cannot be written
  //   kResourceExhausted  the disk is full
  absl::Status Download(const std::string& address, const std::string& path, uint64_t bytes,
                        absl::Duration total_max = absl::InfiniteDuration());

 private:
  class Session;

  // Repeats attempts until one ends the transfer, or nothing has arrived for too long.
  absl::Status Insist(const std::string& address, const std::function<absl::Status()>& attempt);

  const HttpOptions options_;
  const std::unique_ptr<Session> session_;
};

}  // namespace slackline::images
