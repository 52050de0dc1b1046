#include "common/security/security.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/security/check_credentials.h"
#include "common/security/files.h"

namespace slackline::security {
namespace {

namespace tls = grpc::experimental;

// Of the process at the other end: gRPC has verified that the job's authority has signed its certificate. Names of
// hosts mean nothing: nobody knows them when certificates are made.
class PeerVerifier : public tls::ExternalCertificateVerifier {
 public:
  explicit PeerVerifier(Identity expected) : expected_(expected.ToUri()) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)> /*callback*/,
              grpc::Status* result) override {
    const std::vector<grpc::string_ref> uris = request->uri_names();
    if (uris.size() == 1 && uris.front() == expected_) {
      *result = grpc::Status::OK;
      return true;
    }
    const std::string found = uris.empty() ? "none" : std::string(uris.front().data(), uris.front().size());
    *result = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                           absl::StrCat("found a certificate for ", found, "; allowed is ", expected_));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::string expected_;
};

}  // namespace

struct Security::Files {
  std::shared_ptr<tls::CertificateProviderInterface> provider;
};

absl::StatusOr<Security> Security::Open(const job::Job& job, Role self, absl::Duration reload_every) {
  Security security;
  security.job_ = job.name();
  const job::Security& settings = job.security();
  if (settings.mode() == job::Security::TOKEN) {
    absl::StatusOr<std::string> token = ReadToken(settings.token_file());
    if (!token.ok()) return token.status();
    security.token_ = *token;
    security.guard_ = Guard::ByToken(*std::move(token));
  } else if (settings.mode() == job::Security::TLS) {
    if (absl::Status status = CheckPair(settings.folder(), {job.name(), self}, absl::Now()); !status.ok())
      return status;
    const KeyPair own = PathsOf(settings.folder(), self);
    const int64_t seconds = std::max<int64_t>(1, absl::ToInt64Seconds(reload_every));
    security.files_ = std::make_shared<Files>();
    security.files_->provider = std::make_shared<tls::FileWatcherCertificateProvider>(
        own.key, own.certificate, AuthorityPath(settings.folder()), static_cast<unsigned>(seconds));
    absl::StatusOr<std::shared_ptr<RevokedNames>> revoked = RevokedNames::Open(settings.folder());
    if (!revoked.ok()) return revoked.status();
    security.guard_ = Guard::ByCertificate(job.name(), *std::move(revoked));
  }
  return security;
}

std::shared_ptr<grpc::ServerCredentials> Security::server_credentials() const {
  if (files_ == nullptr) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(files_->provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // Without one that the job's authority has signed there is no connection; what its role may do, the guard decides.
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<const rpc::Protection> Security::To(Role peer) const {
  if (files_ == nullptr && token_.empty()) return nullptr;
  auto protection = std::make_shared<rpc::Protection>();
  if (files_ == nullptr) {
    protection->metadata = {kTokenKey, TokenValue(token_)};
    return protection;
  }
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(files_->provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<PeerVerifier>(Identity{job_, peer}));
  protection->credentials = tls::TlsCredentials(options);
  return protection;
}

absl::Status CheckListening(const std::string& host, const job::Security& security) {
  if (IsLoopback(host) || security.mode() != job::Security::NONE || security.insecure()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found ", host, " to listen on, without security; allowed is ", kListeningAllowed));
}

std::string ListeningWarning(const std::string& host, const job::Security& security) {
  if (IsLoopback(host) || security.mode() == job::Security::TLS) return "";
  if (security.mode() == job::Security::TOKEN) {
    return absl::StrCat(
        "listens on ", host,
        " with security.mode: token: the token goes over the network in the clear, and so do gradients and weights");
  }
  return absl::StrCat("listens on ", host, " without security: whoever reaches it can read, change and end this job");
}

}  // namespace slackline::security
