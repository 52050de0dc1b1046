#include "images/coco/coco_data.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/log/logging.h"
#include "common/storage/checksum.h"
#include "images/coco/annotations.h"
#include "images/dataset/scene_source.h"
#include "images/pictures/image.h"
#include "images/pictures/source.h"

namespace slackline::images::coco {
namespace {

// Pictures that are tried in the place of one.
constexpr uint32_t kPlacesMax = 16;
// Names in the log; more would only fill it.
constexpr size_t kNamedMax = 100;
constexpr uint32_t kChannels = 3;

class CocoScenes final : public SceneSource {
 public:
  CocoScenes(std::string folder, Annotations annotations, bool masks, uint64_t images_max)
      : folder_(std::move(folder)),
        annotations_(std::move(annotations)),
        masks_(masks),
        size_(annotations_.images().size()) {
    if (images_max > 0) size_ = std::min(size_, images_max);
  }

  uint64_t size() const override { return size_; }

  absl::Status Read(uint32_t index, Scene& out) const override ABSL_LOCKS_EXCLUDED(mutex_) {
    std::string why;
    for (uint32_t i = 0; i < std::min<uint64_t>(kPlacesMax, size_); ++i) {
      const ImageEntry& image = annotations_.images()[(index + i) % size_];
      const absl::Status read = ReadOne(image, out);
      if (read.ok()) return read;
      Warn(image, read);
      if (why.empty()) why = absl::StrCat(folder_, "/", image.file, ": ", read.message());
    }
    return absl::DataLossError(absl::StrCat("cannot read ", why, "; nor those after it"));
  }

 private:
  absl::Status ReadOne(const ImageEntry& image, Scene& out) const {
    absl::StatusOr<pictures::Image> picture = pictures::ReadPicture(absl::StrCat(folder_, "/", image.file));
    if (!picture.ok()) return picture.status();
    if (picture->width != image.width || picture->height != image.height) {
      return absl::InvalidArgumentError(absl::StrCat("it has ", picture->width, "x", picture->height,
                                                     " pixels, and its annotations are of ", image.width, "x",
                                                     image.height));
    }
    const pictures::Image colours = pictures::WithChannels(*std::move(picture), kChannels);
    const size_t plane = size_t{image.height} * image.width;
    out.channels = kChannels;
    out.height = image.height;
    out.width = image.width;
    out.pixels.resize(kChannels * plane);
    for (size_t p = 0; p < plane; ++p) {
      for (size_t c = 0; c < kChannels; ++c) {
        out.pixels[c * plane + p] = static_cast<float>(colours.pixels[kChannels * p + c]) / 255;
      }
    }
    WriteObjects(image, out);
    return absl::OkStatus();
  }

  void WriteObjects(const ImageEntry& image, Scene& out) const {
    const size_t plane = size_t{image.height} * image.width;
    out.boxes.clear();
    out.labels.clear();
    out.crowd.clear();
    out.has_masks = masks_;
    out.masks.assign(masks_ ? image.objects.size() * plane : 0, 0);
    for (size_t i = 0; i < image.objects.size(); ++i) {
      const ObjectEntry& object = image.objects[i];
      out.boxes.insert(out.boxes.end(), std::begin(object.box), std::end(object.box));
      out.labels.push_back(object.category);
      out.crowd.push_back(object.crowd ? 1 : 0);
      if (!masks_) continue;
      const absl::Span<uint8_t> pixels = absl::MakeSpan(out.masks).subspan(i * plane, plane);
      annotations_.PaintMask(object, {.height = image.height, .width = image.width, .pixels = pixels});
    }
  }

  void Warn(const ImageEntry& image, const absl::Status& status) const {
    {
      absl::MutexLock lock(&mutex_);
      if (warned_.size() >= kNamedMax || !warned_.insert(image.id).second) return;
    }
    log::Warning(folder_, "/", image.file,
                 " cannot be read; the next image replaces it: ", std::string(status.message()));
  }

  const std::string folder_;
  const Annotations annotations_;
  const bool masks_;
  uint64_t size_;
  mutable absl::Mutex mutex_;
  mutable std::set<int64_t> warned_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<Annotations> ReadSplit(const SplitFiles& files, const CocoOptions& options, bool crowds) {
  absl::StatusOr<Annotations> annotations =
      Annotations::Read(files.annotations, {.classes = options.classes, .masks = options.masks, .crowds = crowds});
  if (annotations.ok() && annotations->skipped() > 0) {
    log::Warning(files.annotations, ": ", annotations->skipped(), " annotations or images were skipped; the first is ",
                 annotations->first_skipped());
  }
  return annotations;
}

// Of what the annotations say; masks are where boxes are.
uint64_t FingerprintOf(const Annotations& annotations) {
  RunningChecksum checksum;
  const auto add = [&checksum](uint64_t number) { checksum.Add(&number, sizeof(number)); };
  for (const ImageEntry& image : annotations.images()) {
    for (const uint64_t number : {static_cast<uint64_t>(image.id), uint64_t{image.height}, uint64_t{image.width},
                                  uint64_t{image.objects.size()}, uint64_t{image.file.size()}}) {
      add(number);
    }
    checksum.Add(image.file.data(), image.file.size());
    for (const ObjectEntry& object : image.objects) {
      add(object.category);
      add(object.crowd ? 1 : 0);
      checksum.Add(object.box, sizeof(object.box));
    }
  }
  return std::max<uint64_t>(1, checksum.value());
}

}  // namespace

absl::StatusOr<CocoData> OpenCoco(const CocoOptions& options) {
  absl::StatusOr<Annotations> train = ReadSplit(options.train, options, /*crowds=*/false);
  if (!train.ok()) return train.status();
  absl::StatusOr<Annotations> test = ReadSplit(options.evaluation, options, /*crowds=*/true);
  if (!test.ok()) return test.status();
  CocoData data;
  for (uint32_t label = 0; label < options.classes; ++label) {
    const auto in_train = train->categories().find(label), in_test = test->categories().find(label);
    const bool trained = in_train != train->categories().end(), tested = in_test != test->categories().end();
    if (trained && tested && in_train->second != in_test->second) {
      return absl::InvalidArgumentError(absl::StrCat("category ", label, " is ", in_train->second, " in ",
                                                     options.train.annotations, " and ", in_test->second, " in ",
                                                     options.evaluation.annotations));
    }
    data.class_names.push_back(trained ? in_train->second : tested ? in_test->second : absl::StrCat(label));
  }
  data.fingerprint = FingerprintOf(*train);
  data.train = Dataset::FromScenes(
      std::make_shared<CocoScenes>(options.train.images, *std::move(train), options.masks, options.train_images_max));
  data.test =
      Dataset::FromScenes(std::make_shared<CocoScenes>(options.evaluation.images, *std::move(test), options.masks, 0));
  return data;
}

}  // namespace slackline::images::coco
