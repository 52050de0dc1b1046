#include "common/text/nearest_word.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace slackline {
namespace {

std::string Plain(const std::string& word) {
  std::string plain = absl::AsciiStrToLower(word);
  std::replace(plain.begin(), plain.end(), '-', '_');
  return plain;
}

// Levenshtein's distance: insertions, deletions and changes of one letter each.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

}  // namespace

std::string NearestWord(const std::string& wanted, const std::vector<std::string>& known, size_t* distance) {
  constexpr size_t kLettersMax = 64;
  if (wanted.size() > kLettersMax) return "";
  const std::string plain = Plain(wanted);
  std::string nearest;
  size_t least = std::max<size_t>(2, plain.size() / 3) + 1;
  for (const std::string& word : known) {
    const size_t letters = Distance(plain, Plain(word));
    // Two letters changed in a word of three is another word.
    if (letters >= least || 3 * letters >= 2 * word.size()) continue;
    least = letters;
    nearest = word;
  }
  if (!nearest.empty() && distance != nullptr) *distance = least;
  return nearest;
}

}  // namespace slackline
