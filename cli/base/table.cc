#include "cli/base/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/text/wrap_text.h"

namespace slackline::cli {
namespace {

constexpr size_t kTableColumns = 100, kShortenedMin = 12;
constexpr char kCut[] = "...";

// The beginning of `text` that takes so many columns.
absl::string_view First(absl::string_view text, size_t columns) {
  while (Columns(text) > columns) text.remove_suffix(1);
  return text;
}

// Names of one job differ at the end, where the date is.
std::string Shortened(const std::string& name, size_t columns) {
  const size_t all = Columns(name), kept = columns - Columns(kCut);
  if (all <= columns) return name;
  const size_t head = kept / 3;
  return absl::StrCat(First(name, head), kCut, name.substr(First(name, all - (kept - head)).size()));
}

std::string RowText(const std::vector<std::string>& cells, const std::vector<size_t>& widths, size_t texts) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string space(widths[i] - Columns(cells[i]), ' ');
    absl::StrAppend(&line,
                    i == 0      ? ""
                    : i < texts ? "  "
                                : " ",
                    i < texts ? cells[i] : space, i < texts ? space : cells[i]);
  }
  return line + "\n";
}

}  // namespace

std::string RenderTable(Table table) {
  std::vector<size_t> widths(table.rows.front().size());
  for (const std::vector<std::string>& row : table.rows) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  size_t& shortened = widths[table.shortened];
  const std::vector<std::string> nothing(widths.size());
  const size_t others = Columns(RowText(nothing, widths, table.texts)) - 1 - shortened;
  shortened = std::min(shortened, kTableColumns - std::min(kTableColumns - kShortenedMin, others));
  std::string text;
  for (std::vector<std::string>& row : table.rows) {
    row[table.shortened] = Shortened(row[table.shortened], shortened);
    text += RowText(row, widths, table.texts);
  }
  return text;
}

}  // namespace slackline::cli
