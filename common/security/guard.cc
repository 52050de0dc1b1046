#include "common/security/guard.h"

#include <openssl/crypto.h>

#include <utility>
#include <vector>

#include <grpc/grpc_security_constants.h>
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/security/methods.h"

namespace slackline::security {
namespace {

// Of what somebody else says, in a message.
constexpr size_t kShownMax = 200;

absl::string_view ToView(grpc::string_ref text) { return {text.data(), text.size()}; }

std::string Shown(absl::string_view text) {
  return absl::StrCat("'", absl::Utf8SafeCEscape(text.substr(0, kShownMax)), "'");
}

absl::StatusOr<AdmittedCaller> ByItsCertificate(const grpc::AuthContext* context, const std::string& job) {
  if (context == nullptr || !context->IsPeerAuthenticated()) {
    return absl::UnauthenticatedError("found a caller without a certificate; allowed are those with one of this job");
  }
  const std::vector<grpc::string_ref> uris = context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  const std::string allowed =
      absl::StrCat("allowed is one for ", Identity{job, Role::kWorker}.ToUri(), " or another role");
  if (uris.size() != 1) {
    return absl::UnauthenticatedError(absl::StrCat("found a certificate with ", uris.size(), " URIs; ", allowed));
  }
  const std::optional<Identity> identity = Identity::FromUri(ToView(uris.front()));
  if (!identity) {
    return absl::UnauthenticatedError(
        absl::StrCat("found a certificate for ", Shown(ToView(uris.front())), "; ", allowed));
  }
  if (identity->job != job) {
    return absl::PermissionDeniedError(
        absl::StrCat("found a certificate of job ", identity->job, "; allowed is job ", job));
  }
  const char* const article = identity->role == Role::kOperator ? "an " : "a ";
  const std::string who = identity->name.empty() ? absl::StrCat(article, RoleName(identity->role))
                                                 : absl::StrCat("worker ", identity->name);
  return AdmittedCaller{absl::StrCat(who, " of job ", job), Roles{identity->role}, identity->name};
}

absl::StatusOr<AdmittedCaller> ByItsToken(const grpc::ServerContextBase& context, const std::string& token) {
  const auto found = context.client_metadata().equal_range(kTokenKey);
  if (found.first == found.second) {
    return absl::UnauthenticatedError("found no token; allowed is a call with the one of security.token_file");
  }
  for (auto value = found.first; value != found.second; ++value) {
    if (HasToken(ToView(value->second), token)) return AdmittedCaller{"the holder of the token"};
  }
  return absl::UnauthenticatedError("found another token; allowed is the one of security.token_file");
}

}  // namespace

std::string TokenValue(absl::string_view token) { return absl::StrCat("Bearer ", token); }

bool HasToken(absl::string_view value, absl::string_view token) {
  // The scheme may be written in any case.
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(value, kScheme)) return false;
  value.remove_prefix(kScheme.size());
  return value.size() == token.size() && CRYPTO_memcmp(value.data(), token.data(), token.size()) == 0;
}

absl::Status AdmittedCaller::MustBe(Role role, absl::string_view what) const {
  if (roles.Has(role)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("found ", name, " that wants to ", what, "; allowed is ", RoleName(role)));
}

absl::Status AdmittedCaller::CheckRevoked() const {
  if (worker.empty() || revoked == nullptr || !revoked->Has(worker)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("found the certificate of ", name,
                   ", which is revoked; allowed is another certificate: ask the operator "
                   "of the job for one"));
}

Guard Guard::ByCertificate(std::string job, std::shared_ptr<RevokedNames> revoked) {
  Guard guard;
  guard.revoked_ = std::move(revoked);
  guard.by_ = By::kCertificate;
  guard.job_ = std::move(job);
  return guard;
}

Guard Guard::ByToken(std::string token) {
  Guard guard;
  guard.by_ = By::kToken;
  guard.token_ = std::move(token);
  return guard;
}

absl::StatusOr<AdmittedCaller> Guard::Identify(const grpc::ServerContextBase& context) const {
  switch (by_) {
    case By::kNothing:
      return AdmittedCaller{"anybody"};
    case By::kCertificate:
      return ByItsCertificate(context.auth_context().get(), job_);
    case By::kToken:
      return ByItsToken(context, token_);
  }
  return absl::UnauthenticatedError("nobody is let in");
}

absl::StatusOr<AdmittedCaller> Guard::Admit(const grpc::ServerContextBase& context, absl::string_view method) const {
  absl::StatusOr<AdmittedCaller> caller = Identify(context);
  if (!caller.ok() || by_ != By::kCertificate) return caller;
  caller->revoked = revoked_;
  if (absl::Status counts = caller->CheckRevoked(); !counts.ok()) return counts;
  const Roles allowed = CallersOf(method);
  for (const Role role : kRoles) {
    if (caller->roles.Has(role) && allowed.Has(role)) return caller;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("found ", caller->name, " that calls ", method, "; allowed is ", allowed.ToString()));
}

}  // namespace slackline::security
