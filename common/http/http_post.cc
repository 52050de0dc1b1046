#include "common/http/http_post.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/text/utf8.h"

namespace slackline {
namespace {

// Bytes of an answer that a message quotes.
constexpr size_t kQuotedMax = 200;

size_t TakeAnswer(const char* data, size_t size, size_t count, void* answer) {
  auto& text = *static_cast<std::string*>(answer);
  text.append(data, std::min(size * count, kQuotedMax - std::min(kQuotedMax, text.size())));
  return size * count;
}

}  // namespace

struct HttpPost::Connection {
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  std::string answer;
  char error[CURL_ERROR_SIZE] = "";
};

HttpPost::HttpPost(std::string address, const std::string& type, absl::Duration timeout)
    : address_(std::move(address)), connection_(std::make_unique<Connection>()) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  SLACKLINE_CHECK(ready == CURLE_OK);
  Connection& connection = *connection_;
  connection.curl = curl_easy_init();
  SLACKLINE_CHECK(connection.curl != nullptr);
  connection.headers = curl_slist_append(nullptr, absl::StrCat("Content-Type: ", type).c_str());
  // A server need not say that it wants the document before it gets it.
  connection.headers = curl_slist_append(connection.headers, "Expect:");
  const auto set = [&](CURLoption option, auto value) {
    SLACKLINE_CHECK(curl_easy_setopt(connection.curl, option, value) == CURLE_OK);
  };
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http");
  // The environment may say one; the server is inside the network.
  set(CURLOPT_PROXY, "");
  set(CURLOPT_URL, address_.c_str());
  set(CURLOPT_HTTPHEADER, connection.headers);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(timeout)));
  set(CURLOPT_ERRORBUFFER, connection.error);
  set(CURLOPT_WRITEFUNCTION, &TakeAnswer);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&connection.answer));
  set(CURLOPT_POST, 1L);
}

HttpPost::~HttpPost() {
  curl_easy_cleanup(connection_->curl);
  curl_slist_free_all(connection_->headers);
}

absl::Status HttpPost::Send(const std::string& document) {
  Connection& connection = *connection_;
  connection.answer.clear();
  connection.error[0] = '\0';
  curl_easy_setopt(connection.curl, CURLOPT_POSTFIELDS, document.data());
  curl_easy_setopt(connection.curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(document.size()));
  const CURLcode done = curl_easy_perform(connection.curl);
  if (done != CURLE_OK) {
    const char* const why = connection.error[0] != '\0' ? connection.error : curl_easy_strerror(done);
    return absl::UnavailableError(absl::StrCat(address_, ": ", why));
  }
  long code = 0;
  curl_easy_getinfo(connection.curl, CURLINFO_RESPONSE_CODE, &code);
  if (code >= 200 && code < 300) return absl::OkStatus();
  const std::string message = absl::StrCat(address_, ": found the answer ", code, " (",
                                           OneLine(ValidText(connection.answer)), "); allowed is 200 to 299");
  const bool passes = code == 429 || code == 502 || code == 503 || code == 504;
  return passes ? absl::UnavailableError(message) : absl::FailedPreconditionError(message);
}

}  // namespace slackline
