// Load that a job puts on one machine, as far as its file says.
#pragma once

#include <cstdint>
#include <optional>

#include "job.pb.h"

namespace slackline::cli::doctor {

// Processes of the job on the machine that is examined.
struct Load {
  // Number of servers, including backups.
  uint32_t servers = 0;
  uint32_t workers = 0;
  bool scheduler = true;
  // Number of the model's parameters, averaged buffers included; nullopt: not known.
  std::optional<uint64_t> parameters;
};

// Returns the load of the whole job on one machine.
Load WholeLoad(const job::Job& job);
// Returns the load of one node out of `nodes`, if every node runs workers and servers.
Load NodeLoad(const job::Job& job, uint32_t nodes);

// Memory of one server with all its shards, in bytes, as in docs/limits.md.
uint64_t ServerBytes(const job::Job& job, uint64_t parameters);
// Memory for a worker's weights and gradients, in bytes; the activations of its layers come on top.
uint64_t WorkerBytes(const job::Job& job, uint64_t parameters);
// Size of the weights and optimizer arrays of the whole model as they are saved, in bytes.
uint64_t StateBytes(const job::Job& job, uint64_t parameters);

}  // namespace slackline::cli::doctor
