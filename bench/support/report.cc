#include "bench/support/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/check.h"

namespace slackline::bench {
namespace {

// JSON has no infinities: what could not be measured is null.
void PrintJson(const Row& row) {
  std::printf("{\"what\": \"%s\"", row.what().c_str());
  for (const auto& [name, value] : row.values()) {
    if (std::isfinite(value)) {
      std::printf(", \"%s\": %.9g", name.c_str(), value);
    } else {
      std::printf(", \"%s\": null", name.c_str());
    }
  }
  std::printf("}\n");
  std::fflush(stdout);
}

std::string HeaderOf(const Row& row) {
  std::string header;
  for (const auto& [name, value] : row.values()) header += name + " ";
  return header;
}

Row MedianOf(const std::vector<Row>& rows, const Row& like) {
  Row median(like.what());
  for (size_t column = 0; column < like.values().size(); ++column) {
    std::vector<double> values;
    for (const Row& row : rows) {
      if (row.what() == like.what()) values.push_back(row.values()[column].second);
    }
    median.Add(like.values()[column].first, Median(std::move(values)));
  }
  return median;
}

}  // namespace

void Report::Add(const Row& row) {
  if (json_) PrintJson(row);
  rows_.push_back(row);
}

void Report::Finish() const {
  if (json_) return;
  std::vector<std::string> seen;
  std::string header;
  for (const Row& row : rows_) {
    if (std::find(seen.begin(), seen.end(), row.what()) != seen.end()) continue;
    seen.push_back(row.what());
    if (HeaderOf(row) != header) {
      header = HeaderOf(row);
      std::printf("%-44s", "");
      for (const auto& [name, value] : row.values()) std::printf(" %20s", name.c_str());
      std::printf("\n");
    }
    std::printf("%-44s", row.what().c_str());
    const Row median = MedianOf(rows_, row);
    for (const auto& [name, value] : median.values()) std::printf(" %20.4g", value);
    std::printf("\n");
  }
}

double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

double Percentile(std::vector<double> values, double part) {
  SLACKLINE_CHECK(!values.empty());
  const auto rank = static_cast<size_t>(part * static_cast<double>(values.size()));
  const auto wanted = values.begin() + static_cast<std::ptrdiff_t>(std::min(rank, values.size() - 1));
  std::nth_element(values.begin(), wanted, values.end());
  return *wanted;
}

}  // namespace slackline::bench
