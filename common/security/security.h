// How a process of a job listens, connects, and lets calls in, as the job's `security` section has it.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/security/guard.h"
#include "common/security/role.h"
#include "job.pb.h"

namespace slackline::security {

// How soon replaced certificates are used for new connections, at the latest.
inline constexpr absl::Duration kReloadEvery = absl::Seconds(10);

// Thread-safety: const calls are safe. Copying shares what it holds.
// Threads:       with tls one of gRPC's, which watches the files, as long as a copy, a channel or a server lives.
class Security {
 public:
  // Plain text, and everybody may do everything.
  Security() = default;
  // What `job` says, for a process that is a `self`. Files are read and checked here, and with tls read again when they
  // change. `reload_every` in whole seconds, at least 1.
  //   kNotFound, kPermissionDenied, kInvalidArgument  what is wrong with which file
  static absl::StatusOr<Security> Open(const job::Job& job, Role self, absl::Duration reload_every = kReloadEvery);

  // For the ports of a server.
  std::shared_ptr<grpc::ServerCredentials> server_credentials() const;
  // For channels to processes that are `peer`, which their certificates must say.
  std::shared_ptr<const rpc::Protection> To(Role peer) const;
  const Guard& guard() const { return guard_; }

 private:
  struct Files;

  Guard guard_;
  std::string job_;
  std::string token_;
  // Null without tls; shared by channels and servers.
  std::shared_ptr<Files> files_;
};

// Whether a process may listen on `host`: with security.mode none only on loopback, unless security.insecure.
//   kInvalidArgument  names the ways out
absl::Status CheckListening(const std::string& host, const job::Security& security);

// What an operator should know when a process listens on `host`, for its log; empty if nothing.
std::string ListeningWarning(const std::string& host, const job::Security& security);

}  // namespace slackline::security
