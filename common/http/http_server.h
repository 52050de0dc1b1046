// A small HTTP server for people and tools that watch a process (probes, metrics, pages), and for files that nodes give
// each other before they train. Gradients and weights never pass through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline {

// Largest body of a request.
inline constexpr size_t kHttpBodyBytesMax = size_t{2} << 20;

struct HttpRequest {
  std::string method;
  // The decoded path, without the query.
  std::string path;
  std::string query;
  // Empty for GET and HEAD.
  std::string body = {};
  // Returns the value of a header; empty if it is missing.
  std::function<std::string(const std::string& name)> header;
};

// A body that is sent piece by piece.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // Sends a piece. Returns false once the client or the server is gone, or after the client has read nothing for 3 s.
  virtual bool Send(const std::string& piece) = 0;
};

struct HttpResponse {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  // Headers besides Content-Type and Content-Length.
  std::map<std::string, std::string> headers = {};
  // Writes the body piece by piece in place of `body`, and returns at its end. Occupies one of the server's threads
  // while it runs.
  std::function<void(HttpStream& stream)> stream = nullptr;
  // Length of the stream, if known; otherwise the stream ends with the connection.
  std::optional<uint64_t> stream_bytes = std::nullopt;
};

// Answers GET and HEAD, whose handlers change nothing; unknown paths get 404, other methods 405 unless there is a
// handler of orders. A client that sends nothing or reads nothing occupies no thread: it loses its place when others
// need it, or after 3 s.
//
// Thread-safety: Start() and the destructor: none; handlers are called on the server's threads, several at a time.
// Threads:       `threads`, and one that accepts. They start in Start() and are joined in the destructor, which waits
//                for handlers.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  struct Options {
    // Address to listen on; IPv6 with or without brackets.
    std::string address = "127.0.0.1";
    // Port to listen on; 0: the system chooses.
    uint16_t port = 0;
    int threads = 1;
    // Handlers by exact path.
    std::map<std::string, Handler> handlers = {};
    // Handler for all other paths; null: 404.
    Handler otherwise = nullptr;
    // Handler for POST and DELETE, of all paths; null: 405.
    Handler orders = nullptr;
    // Returns whether the body of an order is read, for callers that are known; `request` is the order without it.
    // Null: no order has a body.
    std::function<bool(const HttpRequest& request)> takes_body = nullptr;
  };

  // Starts the server.
  //   kUnavailable  the address cannot be listened on
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  uint16_t port() const { return port_; }

 private:
  struct Impl;
  explicit HttpServer(Options options);

  const Options options_;
  uint16_t port_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slackline
