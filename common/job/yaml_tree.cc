#include "common/job/yaml_tree.h"

#include <exception>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace slackline::job_file {
namespace {

int Line(const YAML::Mark& mark) { return mark.line + 1; }

// A scalar in quotes, which begins there, ends somewhere: yaml-cpp takes the end of the file for it.
bool IsClosed(absl::string_view quoted) {
  const char quote = quoted.front();
  for (size_t i = 1; i < quoted.size(); ++i) {
    if (quote == '"' && quoted[i] == '\\') {
      ++i;
    } else if (quoted[i] == quote) {
      const bool escaped = quote == '\'' && i + 1 < quoted.size() && quoted[i + 1] == quote;
      if (!escaped) return true;
      ++i;
    }
  }
  return false;
}

// Builds a YamlNode from events. Throws YAML::ParserException, as its caller does.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(absl::string_view text) : text_(text) {}

  YamlNode Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(Begin(mark, YamlNode::Kind::kNull, "?", anchor));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, "found an alias ('*...'); write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    YamlNode node = Begin(mark, YamlNode::Kind::kScalar, tag, anchor);
    node.text = text;
    node.quoted = tag == "!";
    if (node.quoted) CheckClosed(mark);
    Add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Begin(mark, YamlNode::Kind::kList, tag, anchor), mark);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Begin(mark, YamlNode::Kind::kMap, tag, anchor), mark);
  }
  void OnMapEnd() override { Close(); }

 private:
  // A list or map whose end has not been seen; a map may have a key that waits for its value.
  struct Pending {
    YamlNode node;
    bool has_key = false;
    YamlNode key;
  };

  void CheckClosed(const YAML::Mark& mark) const {
    const auto at = static_cast<size_t>(mark.pos);
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\'') || IsClosed(text_.substr(at))) return;
    throw YAML::ParserException(mark, absl::StrCat("found a quote (", text_.substr(at, 1), ") that is never closed"));
  }

  static YamlNode Begin(const YAML::Mark& mark, YamlNode::Kind kind, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) throw YAML::ParserException(mark, "found an anchor ('&...'); write values out");
    // "?" is no tag, "!" is a quoted scalar.
    if (tag != "?" && tag != "!" && !tag.empty()) {
      throw YAML::ParserException(mark, "found the tag '" + tag + "'; write the value without it");
    }
    YamlNode node;
    node.kind = kind;
    node.line = Line(mark);
    return node;
  }

  void Open(YamlNode node, const YAML::Mark& mark) {
    if (open_.size() >= static_cast<size_t>(kYamlDepthMax)) {
      throw YAML::ParserException(mark, absl::StrCat("found nesting deeper than ", kYamlDepthMax));
    }
    open_.push_back({std::move(node), false, {}});
  }

  void Close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Add(std::move(node));
  }

  void Add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Pending& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      parent.key = std::move(node);
      parent.has_key = true;
    } else {
      parent.node.entries.push_back({std::move(parent.key), std::move(node)});
      parent.has_key = false;
    }
  }

  const absl::string_view text_;
  YamlNode root_;
  std::vector<Pending> open_;
};

absl::Status Refuse(int line, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(line, ": ", text));
}

// What yaml-cpp's words mean to somebody who has written a job file; its own where they will do.
std::string Explained(const std::string& said, const std::string& line, int column) {
  namespace Words = YAML::ErrorMsg;
  const char* const unquoted_star =
      "found a value that begins with *, which is an alias in YAML; allowed is that value in quotes (\"*.bias\")";
  const char* const unclosed = "found a quote that is never closed";
  const std::pair<absl::string_view, absl::string_view> meanings[] = {
      {Words::UNKNOWN_ANCHOR, unquoted_star},
      {Words::ALIAS_NOT_FOUND, unquoted_star},
      {Words::CHAR_IN_ALIAS, unquoted_star},
      {Words::ANCHOR_NOT_FOUND, "found an anchor ('&...'); write values out"},
      {Words::CHAR_IN_ANCHOR, "found an anchor ('&...'); write values out"},
      {Words::EOF_IN_SCALAR, unclosed},
      {Words::DOC_IN_SCALAR, unclosed},
      {Words::CHAR_IN_SCALAR, unclosed},
      {Words::MAP_VALUE,
       "found a ':' where no key may be; allowed is one KEY: VALUE a line, the keys of a section as deep as each "
       "other, "
       "and text with ': ' in it in quotes"},
      {Words::END_OF_MAP,
       "found a line that is no KEY: VALUE of the section above it; allowed are keys as deep as each other, with ': ' "
       "behind them"},
      {Words::END_OF_SEQ,
       "found a line that is no item of the list above it; allowed are items as deep as each other, "
       "with '- ' before them"},
      {Words::END_OF_MAP_FLOW, "found no ',' or '}' where one must be; allowed is {KEY: VALUE, KEY: VALUE}"},
      {Words::END_OF_SEQ_FLOW, "found no ',' or ']' where one must be; allowed is [VALUE, VALUE]"},
      {Words::FLOW_END, "found a ']' or '}' that closes nothing"},
      {Words::BLOCK_ENTRY, "found a '- ' where no list may be; allowed are the items of a list below its key"},
      {Words::TAB_IN_INDENTATION, "found a tab before the first letter; allowed are spaces"},
  };
  for (const auto& [words, meaning] : meanings) {
    if (said == words) return std::string(meaning);
  }
  if (absl::StartsWith(said, Words::INVALID_ESCAPE)) {
    return absl::StrCat("found '\\", absl::StripPrefix(said, Words::INVALID_ESCAPE),
                        "' in double quotes; allowed are YAML's escapes, where a backslash is \\\\, or single quotes");
  }
  const auto at = static_cast<size_t>(column);
  if (said == Words::UNKNOWN_TOKEN && at < line.size()) {
    return absl::StrCat("found '", absl::Utf8SafeCEscape(line.substr(at, 1)),
                        "' at the beginning of a value; allowed is that value in quotes");
  }
  return said;
}

// In other words than yaml-cpp's own where those explain a mistake badly.
absl::Status SyntaxError(const std::string& text, const YAML::Exception& error) {
  const int line = error.mark.is_null() ? 1 : Line(error.mark);
  std::istringstream lines(text);
  std::string found;
  for (int i = 0; i < line && std::getline(lines, found); ++i) {
  }
  const size_t first = found.find_first_not_of(' ');
  if (first != std::string::npos && found[first] == '\t') {
    return Refuse(line, "found a tab at the start of the line; allowed are spaces");
  }
  if (absl::StrContains(text, '\r') && !absl::StrContains(text, '\n')) {
    return Refuse(line, "found lines that end with CR alone; allowed are LF, and CR with LF");
  }
  return Refuse(line, Explained(error.msg, found, error.mark.is_null() ? 0 : error.mark.column));
}

}  // namespace

absl::StatusOr<YamlNode> ParseYaml(const std::string& whole) {
  if (whole.size() > kYamlBytesMax) {
    return Refuse(1, absl::StrCat("found ", whole.size(), " bytes; allowed are at most ", kYamlBytesMax));
  }
  if (absl::StartsWith(whole, "\xff\xfe") || absl::StartsWith(whole, "\xfe\xff")) {
    return Refuse(1, "found text in UTF-16; allowed is UTF-8");
  }
  if (whole.find('\0') != std::string::npos) return Refuse(1, "found a zero byte; allowed is text");
  // Marks count from behind a byte order mark.
  const std::string text(absl::StripPrefix(whole, "\xef\xbb\xbf"));
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder first(text);
    if (!parser.HandleNextDocument(first)) return YamlNode();
    TreeBuilder second(text);
    if (parser.HandleNextDocument(second)) {
      const bool marked = absl::StrContains(text, "\n---") || absl::StrContains(text, "\n...");
      return Refuse(second.Take().line, marked ? "found a second document; allowed is one"
                                               : "found more behind what is whole; allowed are KEY: VALUE alone");
    }
    return first.Take();
  } catch (const YAML::Exception& error) {
    return SyntaxError(text, error);
  } catch (const std::exception& error) {
    return Refuse(1, absl::StrCat("not YAML: ", error.what()));
  }
}

}  // namespace slackline::job_file
