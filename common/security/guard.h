// Admits calls, or refuses them with the reason.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/revoked.h"
#include "common/security/role.h"

namespace slackline::security {

// A caller that was admitted.
struct AdmittedCaller {
  // Description for messages: "a worker of job first".
  std::string name;
  Roles roles = Roles::All();
  // Name of a worker that has a certificate of its own, and the list that may revoke it; otherwise empty and null.
  std::string worker = {};
  std::shared_ptr<RevokedNames> revoked = nullptr;

  // Returns kPermissionDenied if the caller's certificate is revoked, which may happen after it was admitted.
  absl::Status CheckRevoked() const;

  // Returns kPermissionDenied unless the caller is a `role`. `what` is the action that needs the role: "say a server's
  // heartbeat".
  absl::Status MustBe(Role role, absl::string_view what) const;
};

// Thread-safety: const calls are safe.
class Guard {
 public:
  // Creates a guard that lets every caller do everything.
  Guard() = default;
  // Creates a guard for callers with certificates of `job`, which gRPC has verified, and which `revoked` does not name.
  static Guard ByCertificate(std::string job, std::shared_ptr<RevokedNames> revoked);
  // Creates a guard for callers with this token. The token gives every role.
  static Guard ByToken(std::string token);

  // Returns the caller if this call of `method`, named as in methods.h, may proceed. Each service calls this first.
  //   kUnauthenticated   the caller has no token, a wrong one, or a certificate without a role
  //   kPermissionDenied  the caller belongs to another job, its role may not call this, or its certificate is revoked
  absl::StatusOr<AdmittedCaller> Admit(const grpc::ServerContextBase& context, absl::string_view method) const;

 private:
  absl::StatusOr<AdmittedCaller> Identify(const grpc::ServerContextBase& context) const;

  enum class By { kNothing, kCertificate, kToken };
  By by_ = By::kNothing;
  std::string job_;
  std::shared_ptr<RevokedNames> revoked_;
  std::string token_;
};

// Returns whether `value`, of a header `Authorization`, has this token. The time that it takes says nothing of how much
// of a wrong one is right.
bool HasToken(absl::string_view value, absl::string_view token);

// Metadata sent with each call: "authorization: Bearer TOKEN".
inline constexpr char kTokenKey[] = "authorization";
std::string TokenValue(absl::string_view token);

}  // namespace slackline::security
