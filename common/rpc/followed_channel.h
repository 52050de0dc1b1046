// A channel to a process that may be started again elsewhere.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"

namespace slackline::rpc {

// What is wrong with a place says it in the log, once.
//
// Thread-safety: safe.
class FollowedChannel {
 public:
  // `place`: HOST:PORT, whose name is looked up for each connection; or, with a slash in it, a file that holds that and
  // is written anew when it changes.
  explicit FollowedChannel(std::string place, std::shared_ptr<const Protection> protection = nullptr);

  // For the next call.
  std::shared_ptr<grpc::Channel> channel() const ABSL_LOCKS_EXCLUDED(mutex_);
  // A call has failed in a way that may pass: looks whether the place says something else now.
  void Failed() ABSL_LOCKS_EXCLUDED(mutex_);
  // No more calls are to come: closes the connection, which the other side would wait for as it ends. One that comes
  // nevertheless makes another.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);
  const std::string& place() const { return place_; }
  // What to say of a call that has failed: of one to no address why there is none, else what the call says.
  std::string Why(const absl::Status& status) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string place_;
  const std::shared_ptr<const Protection> protection_;
  mutable absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  // Why there is no address now; empty while there is one.
  std::string mistake_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::rpc
