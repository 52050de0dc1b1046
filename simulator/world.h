// The state that all simulated processes of one run share.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "images/dataset/dataset.h"
#include "job.pb.h"
#include "scheduler/control/controller.h"
#include "simulator/computation.h"
#include "simulator/event_queue.h"
#include "simulator/network.h"
#include "simulator/worker_plan.h"
#include "worker/local_training/local_config.h"

namespace slackline::simulator {

// Thread-safety: none; one thread runs all processes.
// Ownership:     borrows the controller, which borrows the queue, and the computation.
struct World {
  job::Job job;  // resolved
  Timeouts timeouts;
  ComputeCost cost;
  worker::LocalConfig local;
  EventQueue& queue;
  VirtualNetwork& network;
  scheduler::Controller& controller;
  Computation& computation;
  // The scheduler's endpoint in the network.
  size_t scheduler_end = 0;
  // Number of calls of all processes to the scheduler.
  uint64_t scheduler_calls = 0;
  uint32_t order_epoch = 0;
  std::vector<uint32_t> order = {};

  // Returns the order of the images in `epoch`. The order of the latest epoch is cached, since most workers are in the
  // same epoch.
  const std::vector<uint32_t>& EpochOrder(uint32_t epoch) {
    if (order_epoch != epoch || order.empty()) {
      const Learned& learned = computation.learned();
      if (!learned.balanced_labels.empty()) {
        order = images::BalancedOrder(learned.balanced_labels, job.seed(), epoch);
      } else if (!learned.file_starts.empty()) {
        order = images::OrderByFile(learned.file_starts, learned.train_samples, job.seed(), epoch);
      } else {
        order = images::EpochOrder(learned.train_samples, job.seed(), epoch);
      }
      order_epoch = epoch;
    }
    return order;
  }

  // Ends the job after an error from which no worker can recover.
  void Fail(const std::string& who, const absl::Status& status) {
    controller.StopJob(who + ": " + std::string(status.message()), /*failed=*/true);
  }
};

}  // namespace slackline::simulator
