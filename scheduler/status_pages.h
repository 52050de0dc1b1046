// The status page over HTTP: the page itself, /api/status, and /api/events, which says the status again and again
// (server-sent events).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/http_server.h"
#include "scheduler/status_board.h"

namespace slackline::scheduler {

struct StatusPagesOptions {
  // Streams at a time; beyond, 503.
  int streams_max = 8;
  // Between two events of a stream.
  absl::Duration every = absl::Seconds(1);
};

// Threads of an HTTP server with that many streams: others get their answers nevertheless.
inline int ThreadsFor(const StatusPagesOptions& options) { return options.streams_max + 4; }

// By path, for HttpServer. They borrow `board` as long as they are called.
std::map<std::string, HttpServer::Handler> StatusPages(StatusBoard& board, const StatusPagesOptions& options);

}  // namespace slackline::scheduler
