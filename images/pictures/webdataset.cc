#include "images/pictures/webdataset.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "images/pictures/tar_index.h"

namespace slackline::images::pictures {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLabelBytesMax = 64;
constexpr uint32_t kTarLabelMax = 999'999;

// "cells/0001.left.jpg" is the part left.jpg of cells/0001.
struct MemberName {
  std::string key;
  std::string ending;  // in small letters
};

MemberName NameOf(const std::string& name) {
  const size_t slash = name.rfind('/'), begin = slash == std::string::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', begin);
  if (dot == std::string::npos) return {.key = name, .ending = ""};
  return {.key = name.substr(0, dot), .ending = absl::AsciiStrToLower(name.substr(dot + 1))};
}

bool IsPicture(absl::string_view ending) { return ending == "jpg" || ending == "jpeg" || ending == "png"; }

// What was found of a sample so far.
struct Found {
  std::string key;
  std::optional<TarMember> picture = {};
  std::optional<TarMember> label = {};
  std::string mistake = {};
};

class TarSampleReader {
 public:
  TarSampleReader(const std::string& folder, TarSamples& out) : folder_(folder), out_(out) {}

  absl::Status Read(const std::string& tar, int split) {
    tar_ = tar;
    split_ = split;
    const absl::StatusOr<std::vector<TarMember>> members = ReadTarIndex(Path());
    if (!members.ok()) return members.status();
    Found found;
    for (const TarMember& member : *members) {
      const MemberName name = NameOf(member.name);
      // A name that begins with a dot, as macOS leaves them beside files, is of nobody.
      if (name.key.empty() || absl::EndsWith(name.key, "/")) continue;
      if (name.key != found.key) {
        if (absl::Status added = Add(found); !added.ok()) return added;
        found = {.key = name.key};
      }
      if (!IsPicture(name.ending) && name.ending != "cls") continue;
      std::optional<TarMember>& place = name.ending == "cls" ? found.label : found.picture;
      if (place) found.mistake = absl::StrCat("it has two files .", name.ending == "cls" ? "cls" : "jpg or .png");
      place = member;
    }
    return Add(found);
  }

 private:
  std::string Path() const { return absl::StrCat(folder_, "/", tar_); }

  absl::Status Add(const Found& found) {
    if (!found.picture && !found.label) return absl::OkStatus();
    const std::string name = absl::StrCat(tar_, "/", found.picture ? found.picture->name : found.key);
    const auto skip = [&](std::string reason) {
      out_.skipped.push_back({name, std::move(reason)});
      return absl::OkStatus();
    };
    if (!found.mistake.empty()) return skip(found.mistake);
    if (!found.picture) return skip("it has no file .jpg, .jpeg or .png");
    if (!found.label) return skip("it has no file .cls");
    uint32_t label = 0;
    std::string text;
    if (found.label->bytes <= kLabelBytesMax) {
      absl::StatusOr<std::string> read = ReadPart(Path(), found.label->offset, found.label->bytes);
      if (!read.ok()) return read.status();
      text = std::string(absl::StripAsciiWhitespace(*read));
    }
    if (!absl::SimpleAtoi(text, &label) || label > kTarLabelMax) {
      return skip(absl::StrCat("its .cls is '", text, "'; allowed are whole numbers from 0 to ", kTarLabelMax));
    }
    out_.samples.push_back({.name = name,
                            .label = label,
                            .split = split_,
                            .path = Path(),
                            .in_tar = true,
                            .offset = found.picture->offset,
                            .bytes = found.picture->bytes});
    out_.classes = std::max(out_.classes, label + 1);
    return absl::OkStatus();
  }

  const std::string folder_;
  TarSamples& out_;
  std::string tar_;
  int split_ = -1;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> TarsIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code unknown;
    if (absl::EndsWith(name, ".tar") && name[0] != '.' && it->is_regular_file(unknown)) names.push_back(name);
  }
  if (error) {
    const std::string message = absl::StrCat("cannot list ", folder, ": ", error.message());
    if (error == std::errc::no_such_file_or_directory) return absl::NotFoundError(message);
    return absl::UnavailableError(message);
  }
  std::sort(names.begin(), names.end());
  return names;
}

int SplitOfTar(const std::string& name) {
  absl::string_view stem = absl::StripSuffix(name, ".tar");
  const size_t number = stem.find_last_not_of("0123456789");
  if (number == absl::string_view::npos) return -1;
  stem = absl::StripSuffix(stem.substr(0, number + 1), "-");
  const size_t dash = stem.rfind('-');
  return SplitNamed(dash == absl::string_view::npos ? stem : stem.substr(dash + 1));
}

absl::StatusOr<TarSamples> ReadTarSamples(const std::string& folder, const std::vector<std::string>& tars) {
  TarSamples samples;
  const auto says = [](const std::string& tar) { return SplitOfTar(tar) >= 0; };
  samples.has_splits = !tars.empty() && says(tars.front());
  for (const std::string& tar : tars) {
    if (says(tar) == samples.has_splits) continue;
    const std::string& one = samples.has_splits ? tar : tars.front();
    return absl::InvalidArgumentError(
        absl::StrCat("found ", folder, "/", one,
                     " beside files that say their split; allowed are names as train-00000.tar, validation-00000.tar "
                     "and test-00000.tar for all files, or for none"));
  }
  TarSampleReader reader(folder, samples);
  for (const std::string& tar : tars) {
    if (absl::Status read = reader.Read(tar, SplitOfTar(tar)); !read.ok()) return read;
  }
  return samples;
}

}  // namespace slackline::images::pictures
