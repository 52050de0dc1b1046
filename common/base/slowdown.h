// The workers that the job slows down artificially.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "job.pb.h"

namespace slackline {

// Returns the number at the end of a worker's name, by which the job file refers to it: worker-3 is 3. Returns nullopt
// if the name does not end in a digit, or the number exceeds a uint32_t.
inline std::optional<uint32_t> WorkerNumber(absl::string_view name) {
  size_t digits = 0;
  while (digits < name.size() && absl::ascii_isdigit(name[name.size() - digits - 1])) ++digits;
  uint32_t number = 0;
  if (!absl::SimpleAtoi(name.substr(name.size() - digits), &number)) return std::nullopt;
  return number;
}

// Returns the factor by which a step of the worker with this name is slowed down; 1 for most.
inline double SlowdownOf(absl::string_view name, const job::Worker& worker) {
  const std::optional<uint32_t> number = WorkerNumber(name);
  if (!number) return 1;
  const auto found = worker.slowdown().find(*number);
  return found != worker.slowdown().end() ? found->second : 1;
}

// Returns a warning, for people, about entries of worker.slowdown that match no worker at the start of the job; empty
// if all match. Workers that join later may have such numbers.
inline std::string SlowdownDoubt(const job::Job& job) {
  std::vector<uint32_t> numbers;
  for (const auto& [number, factor] : job.worker().slowdown()) {
    if (number < 1 || number > job.cluster().workers()) numbers.push_back(number);
  }
  if (numbers.empty()) return "";
  std::sort(numbers.begin(), numbers.end());
  return absl::StrCat("worker.slowdown: found ", absl::StrJoin(numbers, ", "),
                      ", the number of no worker; those of the ", "job are 1 to ", job.cluster().workers(),
                      " (cluster.workers), unless more join");
}

}  // namespace slackline
