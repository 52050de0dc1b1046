// A YAML document as a plain tree with line numbers. Only this code knows yaml-cpp.
//
// The tree is built from the parser's events instead of YAML::Node, so that depth and size are bounded, repeated keys
// stay visible, and quoted text can be distinguished from bare text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::job_file {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  // Line number, counted from 1.
  int line = 1;
  // kScalar: the text, and whether it was in quotes. Quoted text stays text, whatever it looks like.
  std::string text;
  bool quoted = false;
  // kList only.
  std::vector<YamlNode> items;
  // kMap only; in the order of the file. The same key may occur twice.
  std::vector<YamlEntry> entries;
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

// Limits on the size and the depth of a file that the reader accepts.
inline constexpr size_t kYamlBytesMax = 1 << 20;
inline constexpr int kYamlDepthMax = 16;

// Parses `whole`, which holds one document. Empty text is a null node. Anchors, aliases and tags are refused.
//   kInvalidArgument  "LINE: what is wrong", LINE counted from 1
absl::StatusOr<YamlNode> ParseYaml(const std::string& whole);

}  // namespace slackline::job_file
