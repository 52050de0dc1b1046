// Makes an HTTP server see its end at once.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"

namespace slackline {

// civetweb looks at its stop flag every 2 s, or when somebody connects. While this lives, somebody does: hold it while
// the server is destroyed.
//
// Threads: one, until the destructor.
class HttpWaker {
 public:
  // A numeric address, as the server listens on it; another one wakes nobody.
  HttpWaker(const std::string& address, uint16_t port);
  HttpWaker(const HttpWaker&) = delete;
  HttpWaker& operator=(const HttpWaker&) = delete;
  ~HttpWaker();

 private:
  absl::Notification stopped_;
  std::thread thread_;
};

}  // namespace slackline
