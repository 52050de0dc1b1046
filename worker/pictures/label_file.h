// A CSV that says which image has which label (RFC 4180; blanks around fields are dropped).
//
// The first row names the columns: `path` and `label`, and `split` if it likes; others are passed over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace slackline::worker::pictures {

struct LabelRow {
  std::string path;
  std::string label;
  std::string split;  // empty without such a column
};

struct LabelTable {
  bool has_split = false;
  std::vector<LabelRow> rows;
};

//   kInvalidArgument  no CSV, a column is missing, a row has too few fields, an image is named twice; names the row
absl::StatusOr<LabelTable> ParseLabels(absl::string_view text);

// One field as CSV has it, in quotes.
std::string CsvField(absl::string_view text);

}  // namespace slackline::worker::pictures
