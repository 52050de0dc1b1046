// Status page over HTTP: the page itself, /api/status, and /api/events, which sends the status again and again
// (server-sent events); /api/settings and /api/logs for those who ask.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/http/http_server.h"
#include "scheduler/status/status_board.h"

namespace slackline::scheduler {

struct StatusPagesOptions {
  // Largest number of streams at a time; further ones get 503.
  int streams_max = 8;
  // Time between two events of a stream.
  absl::Duration every = absl::Seconds(1);
  // Settings of the job, as SettingsJson() makes them.
  std::string settings = "{}";
  // Folder whose logs are shown.
  std::string run_folder = {};
};

// Returns the number of threads of an HTTP server with that many streams: others still get their answers.
inline int ThreadsFor(const StatusPagesOptions& options) { return options.streams_max + 4; }

// Returns the handlers for HttpServer, by path. They borrow `board` as long as they are called.
std::map<std::string, HttpServer::Handler> StatusPages(StatusBoard& board, const StatusPagesOptions& options);

}  // namespace slackline::scheduler
