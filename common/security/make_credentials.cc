#include "common/security/make_credentials.h"

#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/security/files.h"
#include "common/security/openssl.h"
#include "common/security/revoked.h"

namespace slackline::security {
namespace {

using NumberPtr = std::unique_ptr<BIGNUM, FreedBy<BN_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, FreedBy<X509_EXTENSION_free>>;

constexpr int kVersion3 = 2;
constexpr int kSerialBits = 127;
// Of the authority, at least: long enough to renew what it has signed.
constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);

// A certificate and its key.
struct Signed {
  KeyPtr key;
  CertificatePtr certificate;
};

absl::StatusOr<std::string> ToPem(EVP_PKEY* key) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  char* text = nullptr;
  if (PEM_write_bio_PKCS8PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return OpenSslError("cannot write a key");
  }
  const long size = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

absl::StatusOr<std::string> ToPem(X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  char* text = nullptr;
  if (PEM_write_bio_X509(out.get(), certificate) != 1) return OpenSslError("cannot write a certificate");
  const long size = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

bool SetSerial(X509* certificate) {
  const NumberPtr number(BN_new());
  return number != nullptr && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

struct Extension {
  int kind;
  std::string value;
};

// A certificate for a new key, signed by `issuer`, or by itself where there is none.
absl::StatusOr<Signed> Sign(const MakeOptions& options, const std::string& name,
                            const std::vector<Extension>& extensions, const Signed* issuer) {
  Signed made{KeyPtr(EVP_EC_gen("P-256")), CertificatePtr(X509_new())};
  if (made.key == nullptr || made.certificate == nullptr) return OpenSslError("cannot make a key");
  X509* const certificate = made.certificate.get();
  X509* const by = issuer == nullptr ? certificate : issuer->certificate.get();
  bool good = X509_set_version(certificate, kVersion3) == 1 && SetSerial(certificate) &&
              ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(options.not_before)) != nullptr &&
              ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(options.not_after)) != nullptr &&
              X509_set_pubkey(certificate, made.key.get()) == 1;
  const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
  good =
      good && X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1;
  good = good && X509_set_issuer_name(certificate, X509_get_subject_name(by)) == 1;
  for (const Extension& extension : extensions) {
    good = good && AddExtension(certificate, by, extension.kind, extension.value);
  }
  EVP_PKEY* const key = issuer == nullptr ? made.key.get() : issuer->key.get();
  if (!good || X509_sign(certificate, key, EVP_sha256()) == 0) return OpenSslError("cannot make a certificate");
  return made;
}

// An X.509 name has at most 64 characters; what counts is the URI.
std::string NameOf(const MakeOptions& options, const char* what) {
  return absl::StrCat(options.job.substr(0, 40), " ", what);
}

absl::StatusOr<Signed> MakeAuthority(MakeOptions options) {
  options.not_after = std::max(options.not_after, options.not_before + kAuthorityLife);
  return Sign(options, NameOf(options, "authority"),
              {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
               {NID_key_usage, "critical,keyCertSign,cRLSign"},
               {NID_subject_key_identifier, "hash"}},
              nullptr);
}

absl::StatusOr<Signed> MakeLeaf(const MakeOptions& options, const Identity& identity, const Signed& authority) {
  const bool is_called = identity.role == Role::kScheduler || identity.role == Role::kServer;
  return Sign(options, NameOf(options, RoleName(identity.role)),
              {{NID_basic_constraints, "critical,CA:FALSE"},
               {NID_key_usage, "critical,digitalSignature"},
               {NID_ext_key_usage, is_called ? "serverAuth,clientAuth" : "clientAuth"},
               {NID_subject_key_identifier, "hash"},
               {NID_authority_key_identifier, "keyid"},
               {NID_subject_alt_name, absl::StrCat("URI:", identity.ToUri())}},
              &authority);
}

absl::StatusOr<Signed> ReadAuthority(const std::string& folder) {
  const absl::StatusOr<std::string> certificate_text = ReadPublic(AuthorityPath(folder));
  if (!certificate_text.ok()) return certificate_text.status();
  const absl::StatusOr<std::string> key_text = ReadSecret(AuthorityKeyPath(folder));
  if (!key_text.ok()) return key_text.status();
  absl::StatusOr<CertificatePtr> certificate = ParseCertificate(*certificate_text, AuthorityPath(folder));
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<KeyPtr> key = ParseKey(*key_text, AuthorityKeyPath(folder));
  if (!key.ok()) return key.status();
  if (X509_check_private_key(certificate->get(), key->get()) == 1)
    return Signed{*std::move(key), *std::move(certificate)};
  return absl::InvalidArgumentError(
      absl::StrCat(AuthorityKeyPath(folder), ": found another key; allowed is that of ca.crt"));
}

absl::Status CheckName(const char* whose, const std::string& name) {
  if (IsName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "found the ", whose, " name '", absl::Utf8SafeCEscape(name.substr(0, 100)), "'; allowed are ", kNameAllowed));
}

std::string FolderOfWorker(const MakeOptions& options, const std::string& name) {
  return absl::StrCat(options.folder, "/workers/", name);
}

absl::StatusOr<Made> ReadOne(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadPublic(path);
  if (!text.ok()) return text.status();
  const absl::StatusOr<CertificatePtr> certificate = ParseCertificate(*text, path);
  if (!certificate.ok()) return certificate.status();
  const std::vector<std::string> uris = UrisOf(**certificate);
  const std::optional<Identity> identity = uris.size() == 1 ? Identity::FromUri(uris.front()) : std::nullopt;
  int days = 0, seconds = 0;
  const X509* const from = certificate->get();
  if (!identity || ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(from), X509_get0_notAfter(from)) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": found a certificate that is not of a job"));
  }
  return Made{identity->job, absl::Hours(24) * days + absl::Seconds(seconds)};
}

// What is renewed stays what it was.
absl::Status CheckSameJob(const MakeOptions& options) {
  const absl::StatusOr<Made> made = ReadMade(options.folder);
  // Where only the authority is kept.
  if (absl::IsNotFound(made.status())) return absl::OkStatus();
  if (!made.ok() || made->job == options.job) return made.status();
  return absl::InvalidArgumentError(absl::StrCat("found the job name '", options.job, "'; allowed is '", made->job,
                                                 "', which the certificates in ", options.folder, " are of"));
}

absl::Status PrepareFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", folder));
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(folder, ": found a file; allowed is a folder, or nothing"));
  }
  if ((found.st_mode & 0077) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("%s: found a folder with mode %04o; allowed is 0700, or none", folder, found.st_mode & 07777));
}

struct File {
  std::string path;
  std::string text;
};

absl::Status Add(const Signed& made, const KeyPair& paths, std::vector<File>& files) {
  absl::StatusOr<std::string> key = ToPem(made.key.get());
  if (!key.ok()) return key.status();
  absl::StatusOr<std::string> certificate = ToPem(made.certificate.get());
  if (!certificate.ok()) return certificate.status();
  // The certificate last: who watches both reads a pair that belongs together, or sees that it does not yet.
  files.push_back({paths.key, *std::move(key)});
  files.push_back({paths.certificate, *std::move(certificate)});
  return absl::OkStatus();
}

// All or nothing, as far as it can be known before.
absl::Status Write(const std::vector<File>& files, bool replace) {
  for (const File& file : files) {
    if (!replace && ::access(file.path.c_str(), F_OK) == 0) {
      return absl::AlreadyExistsError(absl::StrCat(
          file.path, ": found a file; allowed is none, or --renew (new keys from the same authority) or --force"));
    }
  }
  for (const File& file : files) {
    if (absl::Status status = WriteSecret(file.path, file.text, replace); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Made> ReadMade(const std::string& folder) {
  std::optional<Made> all;
  for (const Role role : kRoles) {
    const std::string path = PathsOf(folder, role).certificate;
    if (::access(path.c_str(), F_OK) != 0) continue;
    const absl::StatusOr<Made> one = ReadOne(path);
    if (!one.ok()) return one;
    if (all && all->job != one->job) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": found a certificate of job '", one->job,
                                                     "'; allowed is one of '", all->job, "', as the others are"));
    }
    all = Made{one->job, std::min(one->life, all ? all->life : absl::InfiniteDuration())};
  }
  if (all) return *std::move(all);
  return absl::NotFoundError(absl::StrCat(folder, ": found no certificate of any role"));
}

absl::Status MakeCredentials(const MakeOptions& options) {
  if (absl::Status status = CheckName("job", options.job); !status.ok()) return status;
  if (absl::Status status = options.renew ? CheckSameJob(options) : absl::OkStatus(); !status.ok()) return status;
  if (absl::Status status = PrepareFolder(options.folder); !status.ok()) return status;
  absl::StatusOr<Signed> authority = options.renew ? ReadAuthority(options.folder) : MakeAuthority(options);
  if (!authority.ok()) return authority.status();
  std::vector<File> files;
  if (!options.renew) {
    const KeyPair paths{AuthorityKeyPath(options.folder), AuthorityPath(options.folder)};
    if (absl::Status status = Add(*authority, paths, files); !status.ok()) return status;
  }
  for (const Role role : kRoles) {
    const absl::StatusOr<Signed> leaf = MakeLeaf(options, {options.job, role}, *authority);
    if (!leaf.ok()) return leaf.status();
    if (absl::Status status = Add(*leaf, PathsOf(options.folder, role), files); !status.ok()) return status;
  }
  return Write(files, options.force || options.renew);
}

absl::StatusOr<std::string> MakeWorkerCredentials(const MakeOptions& options, const std::string& name) {
  if (absl::Status status = CheckName("job", options.job); !status.ok()) return status;
  if (absl::Status status = CheckName("worker", name); !status.ok()) return status;
  if (absl::Status status = CheckSameJob(options); !status.ok()) return status;
  const auto revoked = ReadRevoked(RevokedPath(options.folder));
  if (!revoked.ok()) return revoked.status();
  if (revoked->contains(name)) {
    return absl::InvalidArgumentError(absl::StrCat("found the worker name '", name, "', which ",
                                                   RevokedPath(options.folder), " revokes; allowed is another name"));
  }
  const absl::StatusOr<Signed> authority = ReadAuthority(options.folder);
  if (!authority.ok()) return authority.status();
  const std::string folder = FolderOfWorker(options, name);
  const KeyPair paths = PathsOf(folder, Role::kWorker);
  if (!options.renew && ::access(paths.certificate.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(paths.certificate,
                                                 ": found a certificate; allowed is another name, or ",
                                                 "--renew, which makes a new key and certificate for this worker"));
  }
  const absl::StatusOr<Signed> leaf = MakeLeaf(options, {options.job, Role::kWorker, name}, *authority);
  if (!leaf.ok()) return leaf.status();
  const absl::StatusOr<std::string> authority_text = ToPem(authority->certificate.get());
  if (!authority_text.ok()) return authority_text.status();
  std::vector<File> files = {{AuthorityPath(folder), *authority_text}};
  if (absl::Status added = Add(*leaf, paths, files); !added.ok()) return added;
  absl::Status status = PrepareFolder(absl::StrCat(options.folder, "/workers"));
  if (status.ok()) status = PrepareFolder(folder);
  if (status.ok()) status = Write(files, /*replace=*/true);
  if (!status.ok()) return status;
  return folder;
}

absl::Status RevokeWorker(const MakeOptions& options, const std::string& name) {
  if (absl::Status status = CheckName("worker", name); !status.ok()) return status;
  if (!options.force && ::access(FolderOfWorker(options, name).c_str(), F_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("found no worker ", name, " in ", options.folder,
                                            "/workers; allowed is one that is there, or any name with --force"));
  }
  absl::StatusOr<std::set<std::string>> revoked = ReadRevoked(RevokedPath(options.folder));
  if (!revoked.ok()) return revoked.status();
  if (!revoked->insert(name).second) return absl::OkStatus();
  return WriteSecret(RevokedPath(options.folder), absl::StrCat(absl::StrJoin(*revoked, "\n"), "\n"), /*replace=*/true);
}

absl::Status MakeToken(const std::string& path, bool force) {
  unsigned char bytes[32];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return OpenSslError("cannot make a token");
  const std::string text = absl::WebSafeBase64Escape(absl::string_view(reinterpret_cast<char*>(bytes), sizeof(bytes)));
  return WriteSecret(path, text + "\n", force);
}

}  // namespace slackline::security
