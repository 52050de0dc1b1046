#include "cli/help/plain_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/text/wrap_text.h"

namespace slackline::cli::help {
namespace {

using ::absl::string_view;

// Length of the Markdown link or picture at the begin of `text`, and its text; 0 if there is none.
size_t Link(string_view text, string_view& shown) {
  const size_t open = text[0] == '!' ? 1 : 0;
  size_t close = open, depth = 0;
  for (; close < text.size(); ++close) {
    if (text[close] == '[') ++depth;
    if (text[close] == ']' && --depth == 0) break;
  }
  if (close + 1 >= text.size() || text[close + 1] != '(') return 0;
  const size_t end = text.find(')', close);
  if (end == string_view::npos) return 0;
  shown = open == 1 ? "" : text.substr(1, close - 1);
  return end + 1;
}

// Links, emphasis and escapes go; code stays as it is, in its quotes.
std::string Inline(string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size();) {
    const string_view rest = text.substr(at);
    if (rest[0] == '`') {
      const size_t end = rest.find('`', 1);
      const size_t length = end == string_view::npos ? 1 : end + 1;
      absl::StrAppend(&plain, rest.substr(0, length));
      at += length;
      continue;
    }
    if (rest[0] == '\\' && rest.size() > 1) {
      plain += rest[1];
      at += 2;
      continue;
    }
    string_view shown;
    if (const size_t length = rest[0] == '[' || absl::StartsWith(rest, "![") ? Link(rest, shown) : 0; length > 0) {
      absl::StrAppend(&plain, Inline(shown));
      at += length;
      continue;
    }
    // A lone star between blanks is a product.
    if (rest[0] == '*' && !(absl::StartsWith(rest, "* ") && (at == 0 || text[at - 1] == ' '))) {
      ++at;
      continue;
    }
    plain += rest[0];
    ++at;
  }
  return plain;
}

std::vector<std::string> Cells(string_view line) {
  std::vector<std::string> cells(1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      cells.back() += line[++i];
    } else if (line[i] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  // A row begins and ends with a bar, so its first and its last cell are empty.
  if (!cells.empty()) cells.erase(cells.begin());
  if (!cells.empty()) cells.pop_back();
  for (std::string& cell : cells) cell = Inline(absl::StripAsciiWhitespace(cell));
  return cells;
}

using Table = std::vector<std::vector<std::string>>;

std::string Narrow(const Table& table, const std::vector<size_t>& widths) {
  std::string text;
  const auto row = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? "  " : "   ", cells[i]);
      if (i + 1 < cells.size()) line.append(widths[i] - Columns(cells[i]), ' ');
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  };
  row(table[0]);
  std::vector<std::string> rules;
  for (const size_t width : widths) rules.emplace_back(width, '-');
  row(rules);
  for (size_t i = 1; i < table.size(); ++i) row(table[i]);
  return text;
}

std::string Wide(const Table& table) {
  std::string text;
  for (size_t i = 1; i < table.size(); ++i) {
    absl::StrAppend(&text, i == 1 ? "" : "\n", WrapText(table[i].empty() ? "" : table[i][0], "  ", "  "));
    for (size_t j = 1; j < table[i].size(); ++j) {
      if (table[i][j].empty()) continue;
      const std::string title = j < table[0].size() && !table[0][j].empty() ? table[0][j] + ": " : "";
      absl::StrAppend(&text, WrapText(title + table[i][j], "      ", "      "));
    }
  }
  return text;
}

std::string Rendered(Table table) {
  std::vector<size_t> widths(table[0].size());
  for (std::vector<std::string>& row : table) {
    row.resize(widths.size());
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  size_t whole = 2;
  for (const size_t width : widths) whole += width + 3;
  return whole <= kTextColumns + 3 ? Narrow(table, widths) : Wide(table);
}

// Length of the mark of a list at the begin of `text`, such as "- " or "12. "; 0 if there is none.
size_t ListMark(string_view text) {
  if (absl::StartsWith(text, "- ") || absl::StartsWith(text, "* ")) return 2;
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  return digits > 0 && absl::StartsWith(text.substr(digits), ". ") ? digits + 2 : 0;
}

// Collects the lines of a page to blocks, and shows each.
class Page {
 public:
  void Add(string_view line) {
    const string_view bare = absl::StripLeadingAsciiWhitespace(line);
    if (code_) return Code(line, bare);
    if (html_) return Html(bare);
    if (absl::StartsWith(bare, "```")) {
      End();
      Gap();
      code_ = true;
      code_indent_ = line.size() - bare.size();
    } else if (absl::StartsWith(bare, "<")) {
      End();
      Html(bare);
    } else if (absl::StartsWith(bare, "|")) {
      if (table_.empty()) End();
      // The line below the titles has nothing but bars, colons and dashes.
      if (bare.find_first_not_of("|:- ") != string_view::npos) table_.push_back(Cells(bare));
    } else if (bare.empty()) {
      End();
      gap_ = true;
    } else if (absl::StartsWith(line, "#")) {
      Heading(line);
    } else if (const size_t mark = ListMark(bare); mark > 0) {
      End();
      indent_ = std::string(line.size() - bare.size(), ' ');
      mark_ = std::string(bare.substr(0, mark));
      words_ = std::string(bare.substr(mark));
    } else {
      absl::StrAppend(&words_, words_.empty() ? "" : " ", absl::StripPrefix(bare, "> "));
    }
  }

  std::string Take() {
    End();
    return std::move(text_);
  }

 private:
  void Gap() {
    if (gap_ && !text_.empty()) text_ += "\n";
    gap_ = false;
  }

  void End() {
    if (!table_.empty()) {
      Gap();
      text_ += Rendered(std::exchange(table_, {}));
    }
    if (!words_.empty()) {
      Gap();
      const std::string first = absl::StrCat(indent_, mark_);
      text_ += WrapText(Inline(words_), first, std::string(first.size(), ' '));
    }
    words_ = mark_ = indent_ = "";
  }

  void Heading(string_view line) {
    End();
    gap_ = true;
    Gap();
    const size_t level = line.find_first_not_of('#');
    const std::string title = Inline(absl::StripAsciiWhitespace(line.substr(std::min(level, line.size()))));
    absl::StrAppend(&text_, title, "\n");
    if (level <= 2) absl::StrAppend(&text_, std::string(Columns(title), level == 1 ? '=' : '-'), "\n");
    gap_ = true;
  }

  void Code(string_view line, string_view bare) {
    if (absl::StartsWith(bare, "```")) {
      code_ = false;
      return;
    }
    for (size_t i = 0; i < code_indent_; ++i) line = absl::StripPrefix(line, " ");
    absl::StrAppend(&text_, line.empty() ? "" : "    ", line, "\n");
  }

  // Comments may have several lines; all other HTML of the pages is whole lines.
  void Html(string_view bare) {
    const bool opens = absl::StartsWith(bare, "<!--");
    html_ = (opens || html_) && !absl::StrContains(bare, "-->");
  }

  std::string text_;
  std::string words_, mark_, indent_;
  Table table_;
  size_t code_indent_ = 0;
  bool code_ = false, html_ = false, gap_ = false;
};

}  // namespace

std::string PlainText(string_view markdown) {
  Page page;
  for (const string_view line : absl::StrSplit(markdown, '\n')) page.Add(line);
  return page.Take();
}

}  // namespace slackline::cli::help
