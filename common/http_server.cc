#include "common/http_server.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include <civetweb.h>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/address.h"
#include "common/http_waker.h"

namespace slackline {
namespace {

// What a request may take to arrive, and a response to be taken.
constexpr unsigned kFeatureIpv6 = 8;  // of mg_check_feature()
constexpr char kPatienceMs[] = "3000";

// host:port as civetweb wants it; IPv6 addresses go into brackets.
std::string Endpoint(const std::string& address, uint16_t port) {
  const bool bare_ipv6 = absl::StrContains(address, ':') && !absl::StartsWith(address, "[");
  return bare_ipv6 ? absl::StrCat("[", address, "]:", port) : absl::StrCat(address, ":", port);
}

const char* Phrase(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 206:
      return "Partial Content";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 416:
      return "Range Not Satisfiable";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

// Of what listens on loopback: whether the request meant that. A page of somebody else's in the user's browser may have
// a name that it has resolve to 127.0.0.1 (DNS rebinding), and would read everything.
bool MayCallUs(const std::string& listens_on, const std::string& host) {
  if (host.empty() || !IsLoopback(listens_on)) return true;
  const size_t colon = host.rfind(':');
  const bool port = colon != std::string::npos && host.find(']', colon) == std::string::npos;
  return IsLoopback(port ? host.substr(0, colon) : host);
}

bool Write(mg_connection* connection, const std::string& text) {
  return text.empty() || mg_write(connection, text.data(), text.size()) == static_cast<int>(text.size());
}

// Everything up to the body. `length` below 0: until the connection is closed.
bool WriteHead(mg_connection* connection, const HttpResponse& response, int64_t length) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.code, " ", Phrase(response.code),
                                  "\r\nContent-Type: ", response.type, "\r\nConnection: close\r\n");
  if (length >= 0) absl::StrAppend(&head, "Content-Length: ", length, "\r\n");
  for (const auto& [name, value] : response.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  return Write(connection, head + "\r\n");
}

class Connection : public HttpStream {
 public:
  Connection(mg_connection* connection, const HttpServer& server) : connection_(connection), server_(server) {}
  bool Send(const std::string& piece) override { return !server_.stopping() && Write(connection_, piece); }

 private:
  mg_connection* const connection_;
  const HttpServer& server_;
};

void Answer(mg_connection* connection, const HttpServer& server, const HttpResponse& response, bool head_only) {
  if (response.stream == nullptr) {
    if (WriteHead(connection, response, static_cast<int64_t>(response.body.size())) && !head_only) {
      Write(connection, response.body);
    }
    return;
  }
  const int64_t length = response.stream_bytes ? static_cast<int64_t>(*response.stream_bytes) : -1;
  if (!WriteHead(connection, response, length) || head_only) return;
  Connection stream(connection, server);
  response.stream(stream);
}

}  // namespace

struct HttpServer::Impl {
  static int Handle(mg_connection* connection, void* self) {
    const HttpServer& server = *static_cast<const HttpServer*>(self);
    const mg_request_info* info = mg_get_request_info(connection);
    const std::string method = info->request_method;
    const bool head_only = method == "HEAD";
    HttpResponse response;
    const auto handler = server.options_.handlers.find(info->local_uri);
    const char* host = mg_get_header(connection, "Host");
    if (!MayCallUs(server.options_.address, host == nullptr ? "" : host)) {
      response = {.code = 403,
                  .body = "this process listens on loopback; allowed are the hosts localhost and 127.0.0.1\n"};
    } else if (method != "GET" && !head_only) {
      response = {.code = 405, .body = absl::StrCat("found ", method, "; allowed are GET and HEAD\n")};
    } else if (handler == server.options_.handlers.end() && server.options_.otherwise == nullptr) {
      response = {.code = 404, .body = "found no such page; there are"};
      for (const auto& [path, unused] : server.options_.handlers) absl::StrAppend(&response.body, " ", path);
      response.body += "\n";
    } else {
      HttpRequest request;
      request.path = info->local_uri;
      if (info->query_string != nullptr) request.query = info->query_string;
      request.header = [connection](const std::string& name) {
        const char* value = mg_get_header(connection, name.c_str());
        return std::string(value == nullptr ? "" : value);
      };
      response =
          handler == server.options_.handlers.end() ? server.options_.otherwise(request) : handler->second(request);
    }
    Answer(connection, server, response, head_only);
    return response.code;
  }

  mg_context* context = nullptr;
};

HttpServer::HttpServer(Options options) : options_(std::move(options)), impl_(std::make_unique<Impl>()) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(options)));
  const std::string endpoint = Endpoint(server->options_.address, server->options_.port);
  const std::string threads = absl::StrCat(server->options_.threads);
  const char* settings[] = {
      "listening_ports", endpoint.c_str(),    "num_threads", threads.c_str(), "request_timeout_ms",
      kPatienceMs,       "enable_keep_alive", "no",          nullptr};
  mg_callbacks callbacks{};
  // What it has to say goes to nobody: the status says it.
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  server->impl_->context = mg_start(&callbacks, server.get(), settings);
  if (server->impl_->context == nullptr) {
    const bool six = absl::StartsWith(endpoint, "[") && mg_check_feature(kFeatureIpv6) == 0;
    return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", endpoint, ": ",
                                               six ? "this build of civetweb has no IPv6; network.metrics: false does "
                                                     "without"
                                                   : "is the port taken?"));
  }
  mg_server_port ports[1] = {};
  if (mg_get_server_ports(server->impl_->context, 1, ports) < 1) {
    return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", endpoint));
  }
  server->port_ = static_cast<uint16_t>(ports[0].port);
  mg_set_request_handler(server->impl_->context, "/", Impl::Handle, server.get());
  return server;
}

HttpServer::~HttpServer() {
  stopping_ = true;
  if (impl_->context == nullptr) return;
  const HttpWaker waker(options_.address, port_);
  mg_stop(impl_->context);
}

}  // namespace slackline
