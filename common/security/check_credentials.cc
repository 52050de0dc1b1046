#include "common/security/check_credentials.h"

#include <openssl/x509v3.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/security/files.h"
#include "common/security/openssl.h"
#include "common/security/revoked.h"

namespace slackline::security {
namespace {

using StorePtr = std::unique_ptr<X509_STORE, FreedBy<X509_STORE_free>>;
using ContextPtr = std::unique_ptr<X509_STORE_CTX, FreedBy<X509_STORE_CTX_free>>;

absl::Status Refuse(const std::string& path, const std::string& found, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": found ", found, "; allowed is ", allowed));
}

absl::Status CheckIdentity(const X509& certificate, const std::string& path, const Identity& identity) {
  const std::vector<std::string> uris = UrisOf(certificate);
  const std::string allowed = absl::StrCat("one for ", identity.ToUri());
  if (uris.size() != 1) return Refuse(path, absl::StrCat("a certificate with ", uris.size(), " URIs"), allowed);
  std::optional<Identity> found = Identity::FromUri(uris.front());
  // A worker may have a certificate of its own.
  if (found && found->job == identity.job && found->role == identity.role) return absl::OkStatus();
  return Refuse(path, absl::StrCat("a certificate for ", uris.front()), allowed);
}

// Signed by the authority, and valid now.
absl::Status CheckChain(X509& certificate, X509& authority, const std::string& path, absl::Time now) {
  const StorePtr store(X509_STORE_new());
  const ContextPtr context(X509_STORE_CTX_new());
  if (store == nullptr || context == nullptr || X509_STORE_add_cert(store.get(), &authority) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), &certificate, nullptr) != 1) {
    return OpenSslError("cannot check a certificate");
  }
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  return Refuse(path, absl::StrCat("a certificate that does not hold (", X509_verify_cert_error_string(error), ")"),
                "one that ca.crt beside it has signed and that is valid now");
}

}  // namespace

absl::Status CheckPair(const std::string& folder, const Identity& identity, absl::Time now) {
  const KeyPair paths = PathsOf(folder, identity.role);
  const absl::StatusOr<std::string> authority_text = ReadPublic(AuthorityPath(folder));
  if (!authority_text.ok()) return authority_text.status();
  const absl::StatusOr<std::string> certificate_text = ReadPublic(paths.certificate);
  if (!certificate_text.ok()) return certificate_text.status();
  const absl::StatusOr<std::string> key_text = ReadSecret(paths.key);
  if (!key_text.ok()) return key_text.status();
  const auto authority = ParseCertificate(*authority_text, AuthorityPath(folder));
  if (!authority.ok()) return authority.status();
  const auto certificate = ParseCertificate(*certificate_text, paths.certificate);
  if (!certificate.ok()) return certificate.status();
  const auto key = ParseKey(*key_text, paths.key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return Refuse(paths.key, "another key", absl::StrCat("that of ", paths.certificate));
  }
  if (absl::Status status = CheckIdentity(**certificate, paths.certificate, identity); !status.ok()) return status;
  return CheckChain(**certificate, **authority, paths.certificate, now);
}

absl::Status CheckCredentials(const job::Job& job, absl::Time now) {
  const job::Security& security = job.security();
  if (security.mode() == job::Security::TOKEN) return ReadToken(security.token_file()).status();
  if (security.mode() != job::Security::TLS) return absl::OkStatus();
  const auto revoked = ReadRevoked(RevokedPath(security.folder()));
  if (!revoked.ok()) return revoked.status();
  bool found = false;
  for (const Role role : kRoles) {
    const KeyPair paths = PathsOf(security.folder(), role);
    if (::access(paths.key.c_str(), F_OK) != 0 && ::access(paths.certificate.c_str(), F_OK) != 0) continue;
    found = true;
    if (absl::Status status = CheckPair(security.folder(), {job.name(), role}, now); !status.ok()) return status;
  }
  if (found) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(security.folder(), ": found no ROLE.crt with ROLE.key, for any ROLE of ",
                                          Roles::All().ToString(), "; `slackline credentials` makes them"));
}

}  // namespace slackline::security
