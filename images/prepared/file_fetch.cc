#include "images/prepared/file_fetch.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/http/http_address.h"
#include "common/process/steady_flag.h"
#include "common/time/backoff.h"
#include "common/time/clock.h"

namespace slackline::images {
namespace {

constexpr long kRedirectsMax = 5;
constexpr long kOk = 200, kPartial = 206, kNotFound = 404, kRequestTimeout = 408, kTooMany = 429, kServerErrors = 500;
constexpr char kFtpPrefix[] = "ftp://";
// Files in which distributions keep trusted authorities. A build for one distribution runs on others, too.
constexpr std::array kAuthorities = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                     "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

void PrepareCurl() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  SLACKLINE_CHECK(ready == CURLE_OK);
}

// Returns the file with the system's authorities; null: libcurl's own choice.
const char* AuthoritiesOfSystem() {
  for (const char* const path : kAuthorities) {
    if (::access(path, R_OK) == 0) return path;
  }
  return nullptr;
}

absl::Status DiskError(absl::string_view doing, const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

// The file that a download appends to.
class PartFile {
 public:
  explicit PartFile(const std::string& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) status_ = DiskError("make", path);
    struct stat about {};
    if (descriptor_ >= 0 && ::fstat(descriptor_, &about) == 0) bytes_ = static_cast<uint64_t>(about.st_size);
  }
  ~PartFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const absl::Status& status() const { return status_; }
  uint64_t bytes() const { return bytes_; }

  void Empty() {
    if (::ftruncate(descriptor_, 0) != 0) status_ = DiskError("empty", path_);
    bytes_ = 0;
  }
  void Append(absl::string_view data) {
    while (!data.empty() && status_.ok()) {
      const ssize_t done = ::pwrite(descriptor_, data.data(), data.size(), static_cast<off_t>(bytes_));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) {
        status_ = DiskError("write", path_);
        return;
      }
      bytes_ += static_cast<uint64_t>(done);
      data.remove_prefix(static_cast<size_t>(done));
    }
  }

 private:
  const std::string path_;
  const int descriptor_;
  absl::Status status_;
  uint64_t bytes_ = 0;
};

}  // namespace

// A connection that is kept, and one transfer over it.
class FileFetch::Session {
 public:
  // What comes of a file: may refuse, which ends the transfer.
  using Take = std::function<absl::Status(absl::string_view data)>;

  explicit Session(const FetchOptions& options) : options_(options) {
    PrepareCurl();
    curl_ = curl_easy_init();
    SLACKLINE_CHECK(curl_ != nullptr);
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_PROTOCOLS_STR, "http,https,ftp");
    // The environment may say one; the job file names the servers.
    Set(CURLOPT_PROXY, "");
    const char* const authorities = options_.ca_file.empty() ? AuthoritiesOfSystem() : options_.ca_file.c_str();
    if (authorities != nullptr) Set(CURLOPT_CAINFO, authorities);
    // Authorities of the system are not trusted beside those of the file.
    if (!options_.ca_file.empty()) Set(CURLOPT_CAPATH, nullptr);
    Set(CURLOPT_FOLLOWLOCATION, 1L);
    Set(CURLOPT_MAXREDIRS, kRedirectsMax);
    Set(CURLOPT_ERRORBUFFER, error_);
    Set(CURLOPT_NOPROGRESS, 0L);
    Set(CURLOPT_CONNECTTIMEOUT_MS,
        static_cast<long>(std::max<int64_t>(1, absl::ToInt64Milliseconds(options.silence_max))));
    Set(CURLOPT_WRITEFUNCTION, &Session::OnData);
    Set(CURLOPT_WRITEDATA, this);
    Set(CURLOPT_XFERINFOFUNCTION, &Session::OnProgress);
    Set(CURLOPT_XFERINFODATA, this);
  }
  ~Session() { curl_easy_cleanup(curl_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Transfers after this moment are given up, and those that `watch` ends.
  void Limit(absl::Time end, const FetchWatch& watch) {
    end_ = end;
    watch_ = watch;
  }
  absl::Status Watch() const {
    absl::Status status = options_.watch == nullptr ? absl::OkStatus() : options_.watch();
    return status.ok() && watch_ != nullptr ? watch_() : status;
  }

  // Asks for `address` from byte `from` on. `begin` is told the answer's code before its bytes are taken; for FTP, the
  // code that HTTP has for it.
  //   kUnavailable  worth another attempt
  //   kOutOfRange   the server cannot begin at `from`
  absl::Status Perform(const std::string& address, uint64_t from, const std::function<absl::Status(long code)>& begin,
                       const Take& take) {
    begin_ = &begin;
    take_ = &take;
    from_ = from;
    refusal_ = absl::OkStatus();
    begun_ = false;
    heard_ = SteadyTime().Now();
    error_[0] = '\0';
    ftp_ = absl::StartsWith(address, kFtpPrefix);
    // A request over TLS accepts no answer without TLS.
    Set(CURLOPT_REDIR_PROTOCOLS_STR, IsHttps(address) ? "https" : "http,https");
    const std::string range = absl::StrCat(from, "-");
    Set(CURLOPT_URL, address.c_str());
    Set(CURLOPT_RANGE, from > 0 ? range.c_str() : nullptr);
    const CURLcode code = curl_easy_perform(curl_);
    if (!refusal_.ok()) return refusal_;
    if (code != CURLE_OK) return Explain(code);
    // An empty file has no bytes to begin with.
    return begun_ ? absl::OkStatus() : Begin();
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    SLACKLINE_CHECK(curl_easy_setopt(curl_, option, value) == CURLE_OK);
  }

  // Returns what a transfer's failure means.
  absl::Status Explain(CURLcode code) const {
    const std::string why = error_[0] != '\0' ? error_ : curl_easy_strerror(code);
    switch (code) {
      case CURLE_PEER_FAILED_VERIFICATION:
        return absl::FailedPreconditionError(
            absl::StrCat("found a certificate that is refused (", why, "); allowed is one for this host, signed by ",
                         options_.ca_file.empty() ? "an authority of this system, or of a file that data.ca_file names"
                                                  : absl::StrCat("an authority of data.ca_file: ", options_.ca_file)));
      case CURLE_SSL_CACERT_BADFILE:
        return absl::FailedPreconditionError(absl::StrCat(
            "data.ca_file: found ",
            options_.ca_file.empty() ? "none, and no file with authorities on this system" : options_.ca_file, " (",
            why, "); allowed is a file with certificates in PEM"));
      case CURLE_REMOTE_FILE_NOT_FOUND:
      case CURLE_FTP_COULDNT_RETR_FILE:
      case CURLE_REMOTE_ACCESS_DENIED:
        return FtpRefusal(why);
      case CURLE_LOGIN_DENIED:
        return absl::FailedPreconditionError(
            absl::StrCat("the server refuses the user anonymous (", why, "); needed is a server without login"));
      case CURLE_FTP_COULDNT_USE_REST:
      case CURLE_BAD_DOWNLOAD_RESUME:
        return absl::OutOfRangeError(why);
      case CURLE_TOO_MANY_REDIRECTS:
      case CURLE_UNSUPPORTED_PROTOCOL:
        return absl::FailedPreconditionError(absl::StrCat(why, "; allowed are ", kRedirectsMax,
                                                          " redirects, not to a server without TLS from one with TLS"));
      default:
        return absl::UnavailableError(why);
    }
  }

  // Codes from 500 on are permanent in FTP, those from 400 on may pass.
  absl::Status FtpRefusal(const std::string& why) const {
    long code = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &code);
    const std::string said = absl::StrCat("the server says ", code, " (", why, ")");
    return code >= 400 && code < 500 ? absl::UnavailableError(said) : absl::NotFoundError(said);
  }

  absl::Status Begin() {
    begun_ = true;
    if (ftp_) return (*begin_)(from_ > 0 ? kPartial : kOk);
    long code = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &code);
    if (code == kPartial) {
      if (absl::Status part = CheckPart(); !part.ok()) return part;
    }
    return (*begin_)(code);
  }

  // That what comes is the part that was asked for.
  absl::Status CheckPart() const {
    curl_header* header = nullptr;
    const bool there = curl_easy_header(curl_, "Content-Range", 0, CURLH_HEADER, -1, &header) == CURLHE_OK;
    const absl::string_view range = there ? header->value : "";
    if (absl::StartsWithIgnoreCase(range, absl::StrCat("bytes ", from_, "-"))) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the server says ", kPartial, " with ", there ? absl::StrCat("Content-Range: ", range) : "no Content-Range",
        "; needed is one that begins with bytes ", from_, "-"));
  }

  static size_t OnData(char* data, size_t one, size_t size, void* self) {
    auto* session = static_cast<Session*>(self);
    (void)one;
    session->heard_ = SteadyTime().Now();
    absl::Status& refusal = session->refusal_;
    if (!session->begun_) refusal = session->Begin();
    if (refusal.ok()) refusal = (*session->take_)({data, size});
    if (!refusal.ok()) return CURL_WRITEFUNC_ERROR;
    return size;
  }

  // A few times a second.
  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto* session = static_cast<Session*>(self);
    // A refusal that came before stays.
    if (!session->refusal_.ok()) return 1;
    if (session->refusal_ = session->Watch(); !session->refusal_.ok()) return 1;
    if (SteadyTime().Now() > session->end_) {
      session->refusal_ = absl::DeadlineExceededError("it took too long");
      return 1;
    }
    const absl::Duration silence = session->options_.silence_max;
    if (SteadyTime().Now() - session->heard_ < silence) return 0;
    session->refusal_ = absl::UnavailableError(absl::StrCat("nothing came for ", absl::FormatDuration(silence)));
    return 1;
  }

  const FetchOptions options_;
  CURL* curl_ = nullptr;
  char error_[CURL_ERROR_SIZE] = "";
  // Of the transfer.
  const std::function<absl::Status(long)>* begin_ = nullptr;
  const Take* take_ = nullptr;
  uint64_t from_ = 0;
  absl::Time heard_;
  absl::Time end_ = absl::InfiniteFuture();
  FetchWatch watch_ = nullptr;
  bool ftp_ = false;
  bool begun_ = false;
  absl::Status refusal_;
};

namespace {

// What an answer's code means, if it is none of those that bring the file.
absl::Status Judge(long code) {
  if (code == kOk || code == kPartial) return absl::OkStatus();
  const std::string said = absl::StrCat("the server says ", code);
  if (code == kNotFound) return absl::NotFoundError(said);
  // A server may be overloaded, or begin anew.
  if (code >= kServerErrors || code == kTooMany || code == kRequestTimeout) return absl::UnavailableError(said);
  return absl::FailedPreconditionError(absl::StrCat(said, "; needed is 200 or 206"));
}

}  // namespace

std::string EscapedPath(absl::string_view path) {
  std::string escaped;
  for (const char c : path) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._~/", c);
    absl::StrAppend(&escaped, plain ? std::string(1, c) : absl::StrFormat("%%%02X", static_cast<unsigned char>(c)));
  }
  return escaped;
}

FileFetch::FileFetch(const FetchOptions& options) : options_(options), session_(std::make_unique<Session>(options)) {}

FileFetch::~FileFetch() = default;

absl::StatusOr<std::string> FileFetch::Get(const std::string& address, uint64_t bytes_max, const Limits& limits) {
  session_->Limit(SteadyTime().Now() + limits.total_max, limits.watch);
  std::string body;
  const auto begin = [](long code) { return Judge(code); };
  const auto take = [&](absl::string_view data) {
    if (body.size() + data.size() > bytes_max) {
      return absl::ResourceExhaustedError(absl::StrCat("has more than ", bytes_max, " bytes"));
    }
    absl::StrAppend(&body, data);
    return absl::OkStatus();
  };
  const absl::Status got = Insist(address, [&] {
    body.clear();
    return session_->Perform(address, 0, begin, take);
  });
  if (!got.ok()) return got;
  return body;
}

absl::Status FileFetch::Download(const std::string& address, const std::string& path, uint64_t bytes,
                                 const Limits& limits) {
  session_->Limit(SteadyTime().Now() + limits.total_max, limits.watch);
  PartFile part(path);
  if (!part.status().ok()) return part.status();
  if (part.bytes() > bytes) part.Empty();
  const auto begin = [&](long code) {
    absl::Status judged = Judge(code);
    // It knows no ranges, and sends the whole.
    if (judged.ok() && code == kOk && part.bytes() > 0) part.Empty();
    return judged.ok() ? part.status() : judged;
  };
  const auto take = [&](absl::string_view data) {
    if (part.bytes() + data.size() > bytes) {
      return absl::DataLossError(absl::StrCat("the server's file has more than the ", bytes, " bytes of index.json"));
    }
    part.Append(data);
    return part.status();
  };
  return Insist(address, [&]() -> absl::Status {
    if (part.bytes() == bytes && bytes > 0) return absl::OkStatus();
    const uint64_t from = part.bytes();
    absl::Status done = session_->Perform(address, from, begin, take);
    if (absl::IsOutOfRange(done)) {
      part.Empty();
      return part.status().ok() ? absl::UnavailableError(done.message()) : part.status();
    }
    if (done.ok() && part.bytes() < bytes) {
      return absl::DataLossError(
          absl::StrCat("the server's file has ", part.bytes(), " bytes, index.json says ", bytes));
    }
    if (absl::IsUnavailable(done) && part.bytes() > from) return absl::AbortedError(done.message());
    return done;
  });
}

absl::Status FileFetch::Insist(const std::string& address, const std::function<absl::Status()>& attempt) {
  Backoff backoff(/*seed=*/static_cast<uint64_t>(::getpid()));
  absl::Time silent_since = SteadyTime().Now();
  for (;;) {
    if (absl::Status watched = session_->Watch(); !watched.ok()) return watched;
    const absl::Status done = attempt();
    if (done.ok()) return done;
    // Ended by the watch, whose error stays as it is.
    if (absl::Status watched = session_->Watch(); !watched.ok()) return watched;
    const std::string what = absl::StrCat(address, ": ", done.message());
    if (absl::IsAborted(done)) {
      // Something came before it broke off.
      silent_since = SteadyTime().Now();
      backoff.Reset();
    } else if (!absl::IsUnavailable(done)) {
      return absl::Status(done.code(), what);
    }
    const absl::Duration wait = backoff.Next();
    if (SteadyTime().Now() + wait - silent_since > options_.give_up) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, "; given up after ", absl::FormatDuration(options_.give_up), " without a byte"));
    }
    SteadyPause(wait);
  }
}

}  // namespace slackline::images
