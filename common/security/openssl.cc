#include "common/security/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include "absl/strings/str_cat.h"

namespace slackline::security {

absl::Status OpenSslError(const std::string& what) {
  char text[256] = "no reason given";
  if (const unsigned long code = ERR_peek_last_error(); code != 0) ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", text));
}

absl::StatusOr<CertificatePtr> ParseCertificate(const std::string& pem, const std::string& path) {
  const BioPtr in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  CertificatePtr certificate(in == nullptr ? nullptr : PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError(absl::StrCat(path, ": found no certificate in it; allowed is one as PEM"));
}

absl::StatusOr<KeyPtr> ParseKey(const std::string& pem, const std::string& path) {
  const BioPtr in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // Without a callback OpenSSL would ask the terminal for the password of an encrypted key.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  KeyPtr key(in == nullptr ? nullptr : PEM_read_bio_PrivateKey(in.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": found no private key in it; allowed is one as PEM, not encrypted"));
}

}  // namespace slackline::security
