#include "common/job/yaml_tree.h"

#include <exception>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#include "absl/strings/str_cat.h"

namespace slackline::job_file {
namespace {

int Line(const YAML::Mark& mark) { return mark.line + 1; }

// Builds a YamlNode from events. Throws YAML::ParserException, as its caller does.
class TreeBuilder : public YAML::EventHandler {
 public:
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

  YamlNode root_;
  std::vector<Pending> open_;
};

absl::Status Refuse(int line, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(line, ": ", text));
}

// yaml-cpp's own words, and a hint for the mistake that they explain badly.
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
  return Refuse(line, error.msg);
}

}  // namespace

absl::StatusOr<YamlNode> ParseYaml(const std::string& text) {
  if (text.size() > kYamlBytesMax) {
    return Refuse(1, absl::StrCat("found ", text.size(), " bytes; allowed are at most ", kYamlBytesMax));
  }
  if (text.find('\0') != std::string::npos) return Refuse(1, "found a zero byte; allowed is text");
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder first;
    if (!parser.HandleNextDocument(first)) return YamlNode();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return Refuse(second.Take().line, "found a second document; allowed is one");
    }
    return first.Take();
  } catch (const YAML::Exception& error) {
    return SyntaxError(text, error);
  } catch (const std::exception& error) {
    return Refuse(1, absl::StrCat("not YAML: ", error.what()));
  }
}

}  // namespace slackline::job_file
