// Tables for people, in columns of text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace slackline::cli {

struct Table {
  // Cells by row; the first row holds the titles. Rows have equally many cells.
  std::vector<std::vector<std::string>> rows;
  // Number of columns that begin at the left, as texts do; the ones behind them are figures, and end at the right.
  size_t texts = 0;
  // Column whose cells lose their middle where a line would get longer than 100 columns.
  size_t shortened = 0;
};

std::string RenderTable(Table table);

}  // namespace slackline::cli
