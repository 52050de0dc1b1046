// Finds the known word that a misspelled word was most likely meant to be.
#pragma once

#include <string>
#include <vector>

namespace slackline {

// Returns the word of `known` that differs from `wanted` in the fewest letters. Returns an empty text if none is
// similar: at most two letters may differ, or a third of the letters of a long word. Letter case and `-` or `_` do not
// count.
//   distance  set to the number of letters that differ, if a word is found; may be null
std::string NearestWord(const std::string& wanted, const std::vector<std::string>& known, size_t* distance = nullptr);

}  // namespace slackline
