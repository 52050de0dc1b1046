// A YAML document as a plain tree with line numbers: the only code that knows yaml-cpp.
//
// Built from the parser's events instead of YAML::Node, so that depth and size are bounded, repeated keys stay
// visible, and quoted text can be told from bare text.
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
  // Counted from 1.
  int line = 1;
  // kScalar: the text, and whether it was written in quotes (then it is text, whatever it looks like).
  std::string text;
  bool quoted = false;
  // kList.
  std::vector<YamlNode> items;
  // kMap, in the order of the file; the same key may occur twice.
  std::vector<YamlEntry> entries;
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

// Bounds on what a file can make the reader hold.
inline constexpr size_t kYamlBytesMax = 1 << 20;
inline constexpr int kYamlDepthMax = 16;

// The one document in `whole`; empty text is a null node. Anchors, aliases and tags are refused.
//   kInvalidArgument  "LINE: what is wrong", LINE counted from 1
absl::StatusOr<YamlNode> ParseYaml(const std::string& whole);

}  // namespace slackline::job_file
