// Reads a CSV file that gives each image its label (RFC 4180; blanks around fields are dropped).
//
// The first row names the columns: `path`, `label` and, optionally, `split` and `source`. Other columns are ignored.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace slackline::images::pictures {

struct LabelRow {
  std::string path;
  std::string label;
  std::string split;   // empty if the file has no such column
  std::string source;  // likewise
};

struct LabelTable {
  bool has_split = false;
  std::vector<LabelRow> rows;
};

// Parses the text of the file.
//   kInvalidArgument  not CSV, a column is missing, a row has too few fields, an image is named twice; names the row
absl::StatusOr<LabelTable> ParseLabels(absl::string_view text);

// Returns one CSV field, in quotes.
std::string CsvField(absl::string_view text);

}  // namespace slackline::images::pictures
