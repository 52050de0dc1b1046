// Lets calls in, or says why not.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/role.h"

namespace slackline::security {

// Somebody who was let in.
struct Caller {
  // "a worker of job first", for messages.
  std::string name;
  Roles roles = Roles::All();

  // kPermissionDenied unless the caller is a `role`; `what` is what only such may do: "say a server's heartbeat".
  absl::Status MustBe(Role role, absl::string_view what) const;
};

// Thread-safety: const calls are safe.
class Guard {
 public:
  // Lets everybody do everything.
  Guard() = default;
  // Callers have certificates of `job`, which gRPC has verified.
  static Guard ByCertificate(std::string job);
  // Callers have this token, and with it every role.
  static Guard ByToken(std::string token);

  // Whether this call of `method`, named as in methods.h, may go on. Each service asks it first of all.
  //   kUnauthenticated   the caller has no token, a wrong one, or a certificate without a role
  //   kPermissionDenied  the caller's job is another one, or its role may not call this
  absl::StatusOr<Caller> Admit(const grpc::ServerContextBase& context, absl::string_view method) const;

 private:
  absl::StatusOr<Caller> Identify(const grpc::ServerContextBase& context) const;

  enum class By { kNothing, kCertificate, kToken };
  By by_ = By::kNothing;
  std::string job_;
  std::string token_;
};

// Sent with each call: "authorization: Bearer TOKEN".
inline constexpr char kTokenKey[] = "authorization";
std::string TokenValue(absl::string_view token);

}  // namespace slackline::security
