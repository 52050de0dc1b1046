// What a job puts on one machine, as far as its file says.
#pragma once

#include <cstdint>
#include <optional>

#include "job.pb.h"

namespace slackline::cli::doctor {

// Processes of the job on the machine that is looked at.
struct Load {
  // Backups count.
  uint32_t servers = 0;
  uint32_t workers = 0;
  bool scheduler = true;
  // Of the model, averaged buffers too; nullopt: not known.
  std::optional<uint64_t> parameters;
};

// All of the job on one machine.
Load WholeLoad(const job::Job& job);
// That of one of so many nodes, of which each computes and holds weights.
Load NodeLoad(const job::Job& job, uint32_t nodes);

// Bytes of one of the job's shards' servers, all of its shards: docs/ARCHITECTURE.md#limits.
uint64_t ServerBytes(const job::Job& job, uint64_t parameters);
// Weights and gradients of a worker; what its layers compute comes on top.
uint64_t WorkerBytes(const job::Job& job, uint64_t parameters);
// Weights and optimizer arrays of the whole model, as they are saved.
uint64_t StateBytes(const job::Job& job, uint64_t parameters);

}  // namespace slackline::cli::doctor
