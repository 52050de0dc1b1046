#include "images/base/class_names.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace slackline::images {
namespace {

absl::StatusOr<std::vector<std::string>> ReadNames(const std::string& path, std::ifstream& file, uint32_t classes) {
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    absl::StripAsciiWhitespace(&line);
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() == classes) return names;
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has ", names.size(), " names; the model has ", classes, " classes"));
}

bool IsFashionMnist(const std::string& folder, uint32_t classes) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return classes == 10 && path.filename() == "fashion-mnist";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadClassNames(const std::string& folder, uint32_t classes) {
  const std::string path = folder + "/class-names.txt";
  if (std::ifstream file(path); file) return ReadNames(path, file, classes);
  if (IsFashionMnist(folder, classes)) {
    return std::vector<std::string>{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  }
  std::vector<std::string> names;
  for (uint32_t label = 0; label < classes; ++label) names.push_back(absl::StrCat(label));
  return names;
}

}  // namespace slackline::images
