#include "images/pictures/label_file.h"

#include <csv.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::images::pictures {
namespace {

// libcsv's parser, and the rows that it has found.
class CsvRows {
 public:
  CsvRows() { failed_ = csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL) != 0; }
  ~CsvRows() { csv_free(&parser_); }
  CsvRows(const CsvRows&) = delete;
  CsvRows& operator=(const CsvRows&) = delete;

  absl::StatusOr<std::vector<std::vector<std::string>>> Parse(absl::string_view text) {
    if (failed_) return absl::InternalError("libcsv does not start");
    if (csv_parse(&parser_, text.data(), text.size(), OnField, OnRow, this) != text.size() ||
        csv_fini(&parser_, OnField, OnRow, this) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", rows_.size() + 1, " is no CSV: ", csv_strerror(csv_error(&parser_))));
    }
    return std::move(rows_);
  }

 private:
  static void OnField(void* text, size_t size, void* self) {
    static_cast<CsvRows*>(self)->fields_.emplace_back(static_cast<const char*>(text), size);
  }
  static void OnRow(int, void* self) {
    auto* rows = static_cast<CsvRows*>(self);
    rows->rows_.push_back(std::move(rows->fields_));
    rows->fields_.clear();
  }

  csv_parser parser_{};
  bool failed_ = false;
  std::vector<std::string> fields_;
  std::vector<std::vector<std::string>> rows_;
};

constexpr size_t kNoColumn = static_cast<size_t>(-1);

size_t ColumnOf(const std::vector<std::string>& names, absl::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  return kNoColumn;
}

}  // namespace

absl::StatusOr<LabelTable> ParseLabels(absl::string_view text) {
  // Some editors begin a file with a mark of its encoding.
  if (absl::StartsWith(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  auto rows = CsvRows().Parse(text);
  if (!rows.ok()) return rows.status();
  if (rows->empty())
    return absl::InvalidArgumentError("it is empty; the first row must name the columns path and label");
  const std::vector<std::string>& names = rows->front();
  for (const char* name : {"path", "label", "split", "source"}) {
    if (std::count(names.begin(), names.end(), name) <= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("the first row names the column ", name, " twice; allowed is once"));
  }
  const size_t path = ColumnOf(names, "path"), label = ColumnOf(names, "label"), split = ColumnOf(names, "split");
  const size_t source = ColumnOf(names, "source");
  if (path == kNoColumn || label == kNoColumn) {
    return absl::InvalidArgumentError(
        absl::StrCat("the first row is '", absl::StrJoin(names, ","), "'; it must name the columns path and label"));
  }
  LabelTable table;
  table.has_split = split != kNoColumn;
  std::map<std::string, size_t> seen;
  for (size_t i = 1; i < rows->size(); ++i) {
    std::vector<std::string>& fields = (*rows)[i];
    if (fields.size() != names.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", i + 1, " has ", fields.size(), " fields; the first row has ", names.size()));
    }
    const auto [before, is_new] = seen.emplace(fields[path], i + 1);
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", i + 1, " names ", fields[path], ", as row ", before->second, " does; allowed is once"));
    }
    table.rows.push_back({.path = fields[path],
                          .label = fields[label],
                          .split = table.has_split ? fields[split] : std::string(),
                          .source = source == kNoColumn ? std::string() : fields[source]});
  }
  return table;
}

std::string CsvField(absl::string_view text) {
  std::string field(2 * text.size() + 2, '\0');
  field.resize(csv_write(field.data(), field.size(), text.data(), text.size()));
  return field;
}

}  // namespace slackline::images::pictures
