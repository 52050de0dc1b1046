// The listening, connecting and admission of a process of a job, as in the job's `security` section.
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

// Longest time until replaced certificates are used for new connections.
inline constexpr absl::Duration kReloadEvery = absl::Seconds(10);

// Thread-safety: const calls are safe. Copies share their content.
// Threads:       with tls, one of gRPC's that watches the files, as long as a copy, a channel or a server lives.
class Security {
 public:
  // Creates a security of plain text, in which every caller may do everything.
  Security() = default;
  // Opens the security that `job` asks for, for a process with role `self`. Files are read and checked here. With tls
  // they are read again when they change. `reload_every` is in whole seconds, at least 1.
  //   kNotFound, kPermissionDenied, kInvalidArgument  names the file and the problem
  static absl::StatusOr<Security> Open(const job::Job& job, Role self, absl::Duration reload_every = kReloadEvery);

  // Returns the credentials for a server's ports.
  std::shared_ptr<grpc::ServerCredentials> server_credentials() const;
  // Returns the protection of channels to processes with role `peer`. Their certificates must state this role.
  std::shared_ptr<const rpc::Protection> To(Role peer) const;
  const Guard& guard() const { return guard_; }

 private:
  struct Files;

  Guard guard_;
  std::string job_;
  std::string token_;
  // Null without tls; shared with channels and servers.
  std::shared_ptr<Files> files_;
};

// Checks that a process may listen on `host`: with security.mode none only on loopback, unless security.insecure is
// set.
//   kInvalidArgument  names the alternatives
absl::Status CheckListening(const std::string& host, const job::Security& security);

// Returns a warning to log for the operator when a process listens on `host`; empty if there is none.
std::string ListeningWarning(const std::string& host, const job::Security& security);

}  // namespace slackline::security
