#include "images/pictures/picture_data.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/log/logging.h"
#include "images/pictures/split.h"

namespace slackline::images::pictures {
namespace {

// That of `slackline prepare`.
constexpr uint64_t kOrderSeed = 1;
// Pictures of a class that are tried in the place of one.
constexpr int kSubstitutesMax = 16;
// Names in the log; more would only fill it.
constexpr size_t kWarningsMax = 100;

class PictureImages final : public ImageSource {
 public:
  PictureImages(std::shared_ptr<const Source> source, Form form, std::vector<uint32_t> samples)
      : source_(std::move(source)), form_(std::move(form)), samples_(std::move(samples)), next_(samples_.size()) {
    // The next of the same class, in a ring.
    std::vector<uint32_t> first(source_->classes().size(), kNone), last(first);
    for (uint32_t i = 0; i < samples_.size(); ++i) {
      const uint32_t label = sample(i).label;
      if (first[label] == kNone) first[label] = i;
      if (last[label] != kNone) next_[last[label]] = i;
      last[label] = i;
    }
    for (size_t label = 0; label < first.size(); ++label) {
      if (first[label] != kNone) next_[last[label]] = first[label];
    }
  }

  absl::Status Read(uint32_t index, absl::Span<uint8_t> out) const override ABSL_LOCKS_EXCLUDED(mutex_) {
    uint32_t tried = index;
    std::string why;
    for (int attempt = 0; attempt < kSubstitutesMax; ++attempt) {
      const absl::Status read = ReadShaped(*source_, sample(tried), form_, out);
      if (read.ok()) return read;
      Warn(tried, read);
      if (why.empty()) why = absl::StrCat(sample(tried).name, ": ", read.message());
      tried = next_[tried];
      if (tried == index) break;
    }
    return absl::DataLossError(
        absl::StrCat("cannot read ", why, "; nor others of class ", source_->classes()[sample(index).label]));
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  const Sample& sample(uint32_t index) const { return source_->samples()[samples_[index]]; }

  void Warn(uint32_t index, const absl::Status& status) const {
    {
      absl::MutexLock lock(&mutex_);
      if (warned_.size() >= kWarningsMax || !warned_.insert(index).second) return;
    }
    log::Warning(sample(index).name,
                 " cannot be read; another image of its class replaces it: ", std::string(status.message()));
  }

  const std::shared_ptr<const Source> source_;
  const Form form_;
  const std::vector<uint32_t> samples_;  // of the source
  std::vector<uint32_t> next_;
  mutable absl::Mutex mutex_;
  mutable std::set<uint32_t> warned_ ABSL_GUARDED_BY(mutex_);
};

absl::Status CheckSource(const std::string& folder, const PictureOptions& options, const Source& source) {
  const bool tars = options.kind == SourceKind::kWebdataset;
  if (source.kind() != options.kind || !source.has_splits()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", folder, tars ? ", which has no tar files that say their split" : ", which has no folders of splits",
        "; allowed are ",
        tars ? "train-00000.tar, test-00000.tar and so on" : "train and test with a folder for each class",
        ". `slackline prepare` makes splits"));
  }
  if (tars && options.classes > 0 && source.classes().size() > options.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " has label ", source.classes().size() - 1, "; model.classes is ", options.classes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PictureData> OpenPictures(const std::string& folder, const PictureOptions& options) {
  absl::StatusOr<Source> opened = Source::Open(folder, "", options.classes);
  if (!opened.ok()) return opened.status();
  if (absl::Status status = CheckSource(folder, options, *opened); !status.ok()) return status;
  const auto source = std::make_shared<const Source>(*std::move(opened));
  const absl::StatusOr<Form> form = MakeForm(options.form, *source);
  if (!form.ok()) return form.status();
  if (!source->skipped().empty()) {
    log::Warning(folder, ": ", source->skipped().size(), " files were skipped; the first is ",
                 source->skipped()[0].name, ": ", source->skipped()[0].reason);
  }
  std::vector<std::vector<uint32_t>> splits = SplitSamples(*source, {}, {}, kOrderSeed);
  const auto make = [&](int split, uint64_t images_max) -> absl::StatusOr<Dataset> {
    std::vector<uint32_t>& samples = splits[split];
    if (images_max > 0 && samples.size() > images_max) samples.resize(images_max);
    if (samples.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(folder, " has no images in its split ", kSplitNames[split]));
    }
    std::vector<uint32_t> labels;
    for (const uint32_t sample : samples) labels.push_back(source->samples()[sample].label);
    return Dataset::FromSource(std::make_shared<PictureImages>(source, *form, std::move(samples)), form->shape,
                               std::move(labels));
  };
  PictureData data;
  auto train = make(0, options.train_images_max);
  if (!train.ok()) return train.status();
  const int evaluated = SplitNamed(options.evaluation_split);
  if (evaluated <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("found the split '", options.evaluation_split, "'; allowed is validation or test"));
  }
  auto test = make(evaluated, 0);
  if (!test.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(test.status().message(), "; data.evaluation_split names another: test or validation"));
  }
  if (!options.last_split.empty()) {
    auto last = make(SplitNamed(options.last_split), 0);
    if (!last.ok()) return last.status();
    data.last_test = *std::move(last);
  }
  data.train = *std::move(train);
  data.test = *std::move(test);
  data.class_names = source->classes();
  return data;
}

}  // namespace slackline::images::pictures
