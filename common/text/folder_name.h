// Names of folders that people choose.
#pragma once

#include <string>

#include "common/text/utf8.h"

namespace slackline {

// Returns the mistake in the name of a folder; empty if there is none. Names go into messages and files, which hold
// only UTF-8.
inline std::string FolderMistake(const std::string& name) {
  if (name.empty()) return "found an empty text; allowed is the name of a folder";
  return IsUtf8(name) ? "" : "found bytes that are not UTF-8; allowed is a path in UTF-8: rename the folder";
}

}  // namespace slackline
