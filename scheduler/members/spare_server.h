// Server processes that hold no shards: those that back up a server, wait for shards, or have lost their place.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

// A process that follows a server, or waits for its first shards.
struct SpareServer {
  std::string name;
  std::string address;
  Incarnation incarnation;
  std::optional<wire::LocalAddress> local;
  absl::Time heard;
};
using SpareServers = std::map<ServerId, SpareServer>;

// A process that has lost its place, for example to its backup, until it registers again.
struct DeposedServer {
  Incarnation incarnation;
  ServerId server;
  std::string reason;
  absl::Time since = absl::InfinitePast();
};

// Deposed servers by name. Names that contain the process id never come back: the number is bounded.
using DeposedServers = std::map<std::string, DeposedServer>;

inline void Depose(DeposedServers& deposed, const std::string& name, DeposedServer one) {
  constexpr size_t kDeposedMax = 64;
  if (deposed.size() >= kDeposedMax) deposed.erase(deposed.begin());
  deposed[name] = std::move(one);
}

template <typename Request>
SpareServer SpareOf(const Request& request, Incarnation incarnation, absl::Time now) {
  SpareServer spare = {request.name(), request.address(), incarnation, std::nullopt, now};
  if (request.has_local()) spare.local = request.local();
  return spare;
}

}  // namespace slackline::scheduler
