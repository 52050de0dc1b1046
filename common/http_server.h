// A small HTTP server for people and tools that watch a process: probes, metrics, pages; and for files that nodes give
// each other before they train. Never on the path of gradients and weights.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline {

struct HttpRequest {
  // Without the query, as it was decoded.
  std::string path;
  std::string query;
  // The value of a header; empty where it is not there.
  std::function<std::string(const std::string& name)> header;
};

// A body that is sent piece by piece.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // False once the client or the server is gone, or the client has taken nothing for 3 s.
  virtual bool Send(const std::string& piece) = 0;
};

struct HttpResponse {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  // Headers besides Content-Type and Content-Length.
  std::map<std::string, std::string> headers = {};
  // Instead of a body: returns at the end of it. Keeps one of the server's threads as long as it runs.
  std::function<void(HttpStream& stream)> stream = nullptr;
  // How many bytes the stream has, where that is known; else it ends with the connection.
  std::optional<uint64_t> stream_bytes = std::nullopt;
};

// Answers GET and HEAD; other methods get 405, unknown paths 404. Nothing received changes anything. Clients that say
// nothing, or take nothing, cost no thread: they lose their place when others need it, and 3 s later in any case.
//
// Thread-safety: Start() and the destructor: none; handlers are called on the server's threads, several at a time.
// Threads:       `threads` and one that accepts, from Start() on, joined in the destructor, which waits for handlers.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  struct Options {
    // IPv6 with or without brackets.
    std::string address = "127.0.0.1";
    // 0: the system chooses.
    uint16_t port = 0;
    int threads = 1;
    // By path, exactly.
    std::map<std::string, Handler> handlers;
    // For all other paths; null: 404.
    Handler otherwise = nullptr;
  };

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
