// The results of a program of bench/: JSON lines for bench/run, or a table of medians for a reader.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace slackline::bench {

// A single measurement. Names carry their unit: rounds_per_s, gb_per_s (10^9 bytes), cpu_s_per_gb, p50_us.
class Row {
 public:
  explicit Row(std::string what) : what_(std::move(what)) {}

  Row& Add(const std::string& name, double value) {
    values_.emplace_back(name, value);
    return *this;
  }

  const std::string& what() const { return what_; }
  const std::vector<std::pair<std::string, double>>& values() const { return values_; }

 private:
  std::string what_;
  std::vector<std::pair<std::string, double>> values_;
};

// Thread-safety: none.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  // Adds a row. In JSON mode the row is printed at once.
  void Add(const Row& row);
  // Prints, in table mode, the medians of all rows with the same name, in the order in which the names were added.
  void Finish() const;

 private:
  const bool json_;
  std::vector<Row> rows_;
};

// Requires: values is not empty.
double Median(std::vector<double> values);
// Returns the smallest value that is not below the fraction `part` (0 to 1) of all values.
// Requires: values is not empty.
double Percentile(std::vector<double> values, double part);

}  // namespace slackline::bench
