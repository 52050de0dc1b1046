// Reads the files that make_optimizer_golden.py writes: cases with settings, each with rows of numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/optimizer/optimizer.h"

namespace slackline::ps {

struct GoldenRow {
  // Number of steps or samples behind the values.
  uint64_t time = 0;
  std::vector<double> values;
};

struct GoldenCase {
  std::string name;
  // Settings that the case states; all others have their defaults.
  OptimizerConfig config;
  std::vector<GoldenRow> rows;
};

// Returns the cases of tests/ps/NAME. If the file makes no sense, fails the running test and returns nothing.
std::vector<GoldenCase> ReadGoldenFile(const std::string& name);

}  // namespace slackline::ps
