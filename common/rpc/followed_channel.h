// A channel to a process that may be restarted at another address.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"

namespace slackline::rpc {

// Follows the address of a process. A problem with the place of the address is logged once.
//
// Thread-safety: safe.
class FollowedChannel {
 public:
  // `place` is HOST:PORT, whose name is looked up for each connection; or, with a slash in it, a file that holds
  // HOST:PORT and is rewritten when it changes.
  explicit FollowedChannel(std::string place, std::shared_ptr<const Protection> protection = nullptr);

  // Returns the channel for the next call.
  std::shared_ptr<grpc::Channel> channel() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports that a call failed in a way that may pass. Checks whether the place has another address now.
  void Failed() ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes the connection, since no more calls are expected. Otherwise the other side would wait for it as it ends. A
  // later call opens another connection.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);
  const std::string& place() const { return place_; }
  // Returns the text for a failed call: the reason why there is no address, otherwise the message of `status`.
  std::string Why(const absl::Status& status) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string place_;
  const std::shared_ptr<const Protection> protection_;
  mutable absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  // Reason why there is no address now; empty if there is one.
  std::string mistake_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::rpc
