#include "images/coco/annotations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "images/base/mapped_file.h"

namespace slackline::images::coco {
namespace {

using Json = nlohmann::json;

// The member `key` of an object, or null.
const Json& Member(const Json& json, const char* key) {
  static const Json* const kNothing = new Json;
  const auto found = json.find(key);
  return found == json.end() ? *kNothing : *found;
}

std::optional<int64_t> WholeNumber(const Json& json) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return json.is_number_integer() ? std::optional(json.get<int64_t>()) : std::nullopt;
}

std::optional<uint32_t> WholeNumber(const Json& json, uint32_t min, uint32_t max) {
  const std::optional<int64_t> number = WholeNumber(json);
  if (!number || *number < min || *number > max) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

// A file of the folder, and none elsewhere.
bool IsBelow(const std::string& file) {
  if (file.empty() || file.front() == '/' || file.find('\0') != std::string::npos) return false;
  for (const absl::string_view part : absl::StrSplit(file, '/')) {
    if (part == "..") return false;
  }
  return true;
}

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

}  // namespace

// Takes one element after the other as the parser has it, so that the file is never in memory as a whole.
class Reader {
 public:
  Reader(const Annotations::Options& options, Annotations& out) : options_(options), out_(out) {}

  absl::Status Read(absl::string_view text) {
    const auto filter = [this](int depth, Json::parse_event_t event, Json& json) { return Keep(depth, event, json); };
    try {
      const Json rest = Json::parse(text.begin(), text.end(), filter);
      if (!rest.is_object()) return Wrong("it is no object of JSON; allowed is COCO's format");
    } catch (const Json::exception& error) {
      return Wrong(absl::StrCat("it is no JSON: ", error.what()));
    }
    if (!broken_.ok()) return broken_;
    for (size_t i = 0; i < kLists; ++i) {
      if (!found_[i]) return Wrong(absl::StrCat("it has no list \"", kNames[i], "\"; allowed is COCO's format"));
    }
    return Join();
  }

 private:
  enum List { kImages, kAnnotations, kCategories, kLists };
  static constexpr const char* kNames[kLists] = {"images", "annotations", "categories"};
  // Depths: of the file's members, and of what is in its lists.
  static constexpr int kMemberDepth = 1, kElementDepth = 2;

  struct Loose {
    int64_t image = 0;
    uint64_t number = 0;  // of the annotation in the file
    uint32_t height = 0;  // of runs; else 0
    uint32_t width = 0;
    ObjectEntry object;
  };

  bool Keep(int depth, Json::parse_event_t event, Json& json) {
    using Event = Json::parse_event_t;
    if (depth == kMemberDepth && event == Event::key) {
      const auto name = std::find(std::begin(kNames), std::end(kNames), json.get_ref<const std::string&>());
      list_ = static_cast<List>(name - std::begin(kNames));
      return list_ != kLists;
    }
    if (list_ == kLists) return true;
    if (depth == kMemberDepth && event == Event::array_start) found_[list_] = true;
    if (depth != kElementDepth || !found_[list_]) return true;
    if (event == Event::object_end) {
      Take(json);
      return false;
    }
    if (event == Event::value || event == Event::array_end) {
      if (broken_.ok()) broken_ = Wrong(absl::StrCat("\"", kNames[list_], "\" has something else than objects"));
      return false;
    }
    return true;
  }

  void Take(const Json& json) {
    if (!broken_.ok()) return;
    if (list_ == kAnnotations) {
      const absl::Status taken = TakeAnnotation(json);
      if (!taken.ok()) Skip(absl::StrCat("annotation ", annotations_), taken.message());
      ++annotations_;
      return;
    }
    broken_ = list_ == kImages ? TakeImage(json) : TakeCategory(json);
  }

  void Skip(absl::string_view what, absl::string_view why) {
    if (out_.skipped_++ == 0) out_.first_skipped_ = absl::StrCat(what, ": ", why);
  }

  absl::Status TakeImage(const Json& json) {
    const std::string name = absl::StrCat("image ", out_.images_.size());
    const std::optional<int64_t> id = WholeNumber(Member(json, "id"));
    const std::optional<uint32_t> height = WholeNumber(Member(json, "height"), 1, kSideMax),
                                  width = WholeNumber(Member(json, "width"), 1, kSideMax);
    const Json& file = Member(json, "file_name");
    if (!id) return Wrong(absl::StrCat(name, " has no \"id\" that is a whole number"));
    if (!height || !width) {
      return Wrong(absl::StrCat(name, " has no \"height\" and \"width\" from 1 to ", kSideMax));
    }
    if (!file.is_string() || !IsBelow(file.get_ref<const std::string&>())) {
      return Wrong(absl::StrCat(name, " has no \"file_name\" below its folder"));
    }
    if (!places_.emplace(*id, 0).second) return Wrong(absl::StrCat(name, " has id ", *id, ", as one before it has"));
    out_.images_.push_back({.id = *id, .file = file.get<std::string>(), .height = *height, .width = *width});
    return absl::OkStatus();
  }

  absl::Status TakeCategory(const Json& json) {
    const std::optional<uint32_t> id = WholeNumber(Member(json, "id"), 0, std::numeric_limits<uint32_t>::max());
    const Json& name = Member(json, "name");
    if (!id || !name.is_string()) return Wrong("a category has no \"id\" from 0 on, or no \"name\"");
    const std::string text = name.get<std::string>();
    if (*id >= options_.classes) {
      return Wrong(absl::StrCat("category ", text, " has id ", *id, "; model.classes is ", options_.classes,
                                ", and ids are labels, which are below"));
    }
    if (!out_.categories_.emplace(*id, text).second) return Wrong(absl::StrCat("two categories have id ", *id));
    return absl::OkStatus();
  }

  absl::Status TakeAnnotation(const Json& json) {
    Loose loose;
    const std::optional<int64_t> image = WholeNumber(Member(json, "image_id"));
    if (!image) return Wrong("it has no \"image_id\" that is a whole number");
    const auto category = WholeNumber(Member(json, "category_id"), 0, std::numeric_limits<uint32_t>::max());
    if (!category) return Wrong("it has no \"category_id\" from 0 on");
    const Json& crowd = Member(json, "iscrowd");
    loose.object.crowd = crowd == 1 || crowd == true;
    if (loose.object.crowd && !options_.crowds) return absl::OkStatus();
    loose.image = *image;
    loose.number = annotations_;
    loose.object.category = *category;
    if (absl::Status box = TakeBox(Member(json, "bbox"), loose.object); !box.ok()) return box;
    // What a crowd covers is compared by its box.
    if (options_.masks) {
      if (absl::Status mask = TakeMask(Member(json, "segmentation"), loose); !mask.ok()) return mask;
    }
    loose_.push_back(loose);
    return absl::OkStatus();
  }

  static absl::Status TakeBox(const Json& json, ObjectEntry& object) {
    const bool four = json.is_array() && json.size() == 4 &&
                      std::all_of(json.begin(), json.end(), [](const Json& side) { return side.is_number(); });
    if (!four) return Wrong("it has no \"bbox\" of four numbers");
    const double left = json[0].get<double>(), top = json[1].get<double>();
    const double sides[4] = {left, top, left + json[2].get<double>(), top + json[3].get<double>()};
    for (size_t i = 0; i < 4; ++i) {
      if (!(std::abs(sides[i]) <= kCoordinateMax)) return Wrong("its \"bbox\" is far outside of any image");
      object.box[i] = static_cast<float>(sides[i]);
    }
    return absl::OkStatus();
  }

  absl::Status TakeMask(const Json& json, Loose& loose) {
    if (json.is_array() && !json.empty()) return TakePolygons(json, loose.object);
    if (json.is_object()) return TakeRuns(json, loose);
    return Wrong("it has no \"segmentation\"; data.coco.masks: false trains on boxes alone");
  }

  absl::Status TakePolygons(const Json& json, ObjectEntry& object) {
    object.shape = ObjectEntry::Shape::kPolygons;
    object.parts = static_cast<uint32_t>(json.size());
    object.lengths = out_.lengths_.size();
    object.begin = out_.numbers_.size();
    const auto sane = [](const Json& number) {
      return number.is_number() && std::abs(number.get<double>()) < kCoordinateMax;
    };
    // All before any of them is kept.
    double outline = 0;
    for (const Json& polygon : json) {
      if (!polygon.is_array() || polygon.size() < 6 || polygon.size() % 2 != 0 ||
          !std::all_of(polygon.begin(), polygon.end(), sane)) {
        return Wrong("a polygon of its \"segmentation\" has no three points, or numbers that are none");
      }
      for (size_t i = 2; i < polygon.size(); ++i) {
        outline += std::abs(polygon[i].get<double>() - polygon[i - 2].get<double>());
      }
    }
    if (outline > kOutlineMax) return Wrong(absl::StrCat("its outline is ", outline, " pixels long"));
    for (const Json& polygon : json) {
      out_.lengths_.push_back(static_cast<uint32_t>(polygon.size()));
      for (const Json& number : polygon) out_.numbers_.push_back(FifthsOf(number.get<double>()));
    }
    return absl::OkStatus();
  }

  absl::Status TakeRuns(const Json& json, Loose& loose) {
    const Json &size = Member(json, "size"), &counts = Member(json, "counts");
    const bool two = size.is_array() && size.size() == 2;
    const auto height = two ? WholeNumber(size[0], 1, kSideMax) : std::nullopt;
    const auto width = two ? WholeNumber(size[1], 1, kSideMax) : std::nullopt;
    if (!height || !width) return Wrong("the \"size\" of its \"segmentation\" is no height and width");
    std::vector<uint32_t> runs;
    if (counts.is_string()) {
      absl::StatusOr<std::vector<uint32_t>> parsed = ParseRuns(counts.get_ref<const std::string&>());
      if (!parsed.ok()) return parsed.status();
      runs = *std::move(parsed);
    } else if (counts.is_array()) {
      for (const Json& count : counts) {
        const auto run = WholeNumber(count, 0, std::numeric_limits<uint32_t>::max());
        if (!run) return Wrong("\"counts\" of its \"segmentation\" are no lengths");
        runs.push_back(*run);
      }
    }
    uint64_t pixels = 0;
    for (const uint32_t run : runs) pixels += run;
    if (pixels != uint64_t{*height} * *width) {
      return Wrong(absl::StrCat("the runs of its \"segmentation\" are ", pixels, " pixels; its \"size\" has ",
                                uint64_t{*height} * *width));
    }
    loose.height = *height;
    loose.width = *width;
    loose.object.shape = ObjectEntry::Shape::kRuns;
    loose.object.begin = out_.runs_.size();
    loose.object.size = runs.size();
    out_.runs_.insert(out_.runs_.end(), runs.begin(), runs.end());
    return absl::OkStatus();
  }

  // Gives each image its objects.
  absl::Status Join() {
    std::sort(out_.images_.begin(), out_.images_.end(),
              [](const ImageEntry& a, const ImageEntry& b) { return a.id < b.id; });
    for (size_t i = 0; i < out_.images_.size(); ++i) places_[out_.images_[i].id] = i;
    for (Loose& loose : loose_) {
      const absl::Status joined = Give(loose);
      if (!joined.ok()) Skip(absl::StrCat("annotation ", loose.number), joined.message());
    }
    std::erase_if(out_.images_, [this](const ImageEntry& image) { return TooMuch(image); });
    if (out_.images_.size() > std::numeric_limits<uint32_t>::max()) return Wrong("it has more images than 2^32");
    const bool empty = std::all_of(out_.images_.begin(), out_.images_.end(),
                                   [](const ImageEntry& image) { return image.objects.empty(); });
    if (!empty) return absl::OkStatus();
    return Wrong(absl::StrCat("it has no object on any image",
                              out_.skipped_ == 0 ? "" : absl::StrCat("; passed over is ", out_.first_skipped_)));
  }

  absl::Status Give(Loose& loose) {
    const auto place = places_.find(loose.image);
    if (place == places_.end()) return Wrong(absl::StrCat("there is no image with id ", loose.image));
    if (!out_.categories_.contains(loose.object.category)) {
      return Wrong(absl::StrCat("there is no category with id ", loose.object.category));
    }
    ImageEntry& image = out_.images_[place->second];
    if (loose.object.shape == ObjectEntry::Shape::kRuns &&
        (loose.height != image.height || loose.width != image.width)) {
      return Wrong(absl::StrCat("its runs are of ", loose.width, "x", loose.height, " pixels, image ", image.id, " of ",
                                image.width, "x", image.height));
    }
    float* const box = loose.object.box;
    for (size_t i = 0; i < 4; ++i) {
      box[i] = std::clamp(box[i], 0.0f, static_cast<float>(i % 2 == 0 ? image.width : image.height));
    }
    if (box[0] >= box[2] || box[1] >= box[3]) {
      return Wrong(absl::StrCat("its \"bbox\" has nothing of image ", image.id));
    }
    image.objects.push_back(loose.object);
    return absl::OkStatus();
  }

  bool TooMuch(const ImageEntry& image) {
    const uint64_t objects = image.objects.size();
    const bool masks = options_.masks && objects * image.height * image.width > kMaskBytesMax;
    if (objects <= kObjectsMax && !masks) return false;
    Skip(absl::StrCat("image ", image.id),
         absl::StrCat("it has ", objects, " objects; allowed are ", kObjectsMax,
                      options_.masks ? absl::StrCat(", and ", kMaskBytesMax, " pixels of masks") : ""));
    return true;
  }

  const Annotations::Options options_;
  Annotations& out_;
  absl::Status broken_;
  List list_ = kLists;
  bool found_[kLists] = {};
  uint64_t annotations_ = 0;
  std::unordered_map<int64_t, size_t> places_;
  std::vector<Loose> loose_;
};

absl::StatusOr<Annotations> Annotations::Parse(absl::string_view text, const Options& options) {
  if (text.size() > kAnnotationsBytesMax) {
    return Wrong(absl::StrCat("it has ", text.size(), " bytes; allowed are ", kAnnotationsBytesMax));
  }
  Annotations annotations;
  const absl::Status read = Reader(options, annotations).Read(text);
  if (!read.ok()) return read;
  return annotations;
}

absl::StatusOr<Annotations> Annotations::Read(const std::string& path, const Options& options) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<Annotations> annotations = Parse(file->bytes(), options);
  if (!annotations.ok()) return Wrong(absl::StrCat(path, ": ", annotations.status().message()));
  return annotations;
}

void Annotations::PaintMask(const ObjectEntry& object, const Canvas& canvas) const {
  if (object.shape == ObjectEntry::Shape::kRuns) {
    return PaintRuns(absl::MakeConstSpan(runs_).subspan(object.begin, object.size), canvas);
  }
  uint64_t at = object.begin;
  for (uint32_t i = 0; i < object.parts; ++i) {
    const uint32_t length = lengths_[object.lengths + i];
    PaintPolygon(absl::MakeConstSpan(numbers_).subspan(at, length), canvas);
    at += length;
  }
}

}  // namespace slackline::images::coco
