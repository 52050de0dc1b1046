// Owning pointers to OpenSSL's objects.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::security {

template <auto kFree>
struct FreedBy {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};

using KeyPtr = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, FreedBy<X509_free>>;
using BioPtr = std::unique_ptr<BIO, FreedBy<BIO_free_all>>;

// Returns kInternal with `what` and OpenSSL's error text of the last failed call, and empties OpenSSL's error queue.
absl::Status OpenSslError(const std::string& what);

// Parse PEM. `path` is for messages.
//   kInvalidArgument  names the path
absl::StatusOr<CertificatePtr> ParseCertificate(const std::string& pem, const std::string& path);
absl::StatusOr<KeyPtr> ParseKey(const std::string& pem, const std::string& path);

// Returns the URIs among a certificate's alternative names.
std::vector<std::string> UrisOf(const X509& certificate);

}  // namespace slackline::security
