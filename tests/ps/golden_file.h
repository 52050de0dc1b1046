// Reads the files that make_optimizer_golden.py writes: cases with settings, each with rows of numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/optimizer/optimizer.h"

namespace slackline::ps {

struct GoldenRow {
  // Steps or samples behind the values.
  uint64_t time = 0;
  std::vector<double> values;
};

struct GoldenCase {
  std::string name;
  // What the case states; the rest has defaults.
  OptimizerConfig config;
  std::vector<GoldenRow> rows;
};

// The cases of tests/ps/NAME. Fails the running test, and returns nothing, where the file makes no sense.
std::vector<GoldenCase> ReadGoldenFile(const std::string& name);

}  // namespace slackline::ps
