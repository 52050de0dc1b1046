#include "cli/prepare/prepare.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/numeric/int128.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/prepare/decoders.h"
#include "cli/prepare/output.h"
#include "cli/prepare/shard_maker.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"
#include "images/base/halves.h"
#include "images/pictures/label_file.h"
#include "images/pictures/source.h"
#include "images/pictures/split.h"
#include "images/prepared/prepared_check.h"
#include "images/prepared/prepared_index.h"
#include "images/prepared/prepared_shard.h"

namespace slackline::cli {
namespace prepare {
namespace {

using Json = nlohmann::ordered_json;
using images::pictures::CsvField;
using images::pictures::Fold;
using images::pictures::Fractions;
using images::pictures::Image;
using images::pictures::kSplitNames;
using images::pictures::kSplits;
using images::pictures::MakeForm;
using images::pictures::ParseFractions;
using images::pictures::Size;
using images::pictures::SizeOf;
using images::pictures::SplitSamples;

constexpr char kDefaultSplit[] = "train=0.8,validation=0.1,test=0.1";
constexpr uint64_t kShardBytes = uint64_t{64} << 20;
constexpr uint64_t kShardBytesMax = uint64_t{4} << 30;
constexpr uint64_t kShardImagesMax = 65536;
constexpr double kPixelMax = 255;
// Of float16, which has no more digits: rounding makes so much of nothing.
constexpr double kVarianceMin = 1e-12;

// How far it is, on a line of the terminal; nothing where there is none.
class ProgressLine {
 public:
  ProgressLine(const char* verb, uint64_t images, bool quiet)
      : verb_(verb), images_(images), shown_(!quiet && ::isatty(STDERR_FILENO) != 0), began_(absl::Now()) {}
  ~ProgressLine() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }

  // `done` of the shard in the making, behind those of earlier ones.
  void Show(size_t done) {
    if (!shown_) return;
    const double seconds = absl::ToDoubleSeconds(absl::Now() - began_);
    const uint64_t all = before_ + done;
    std::fprintf(stderr, "\r\x1b[K%s %lu of %lu images, %lu skipped, %.0f images/s", verb_,
                 static_cast<unsigned long>(all), static_cast<unsigned long>(images_),
                 static_cast<unsigned long>(skipped_), static_cast<double>(made_ + done) / std::max(seconds, 1e-3));
    std::fflush(stderr);
  }
  void Add(uint64_t images, uint64_t skipped, bool made) {
    before_ += images;
    skipped_ += skipped;
    if (made) made_ += images;
    Show(0);
  }

 private:
  const char* const verb_;
  const uint64_t images_;
  const bool shown_;
  const absl::Time began_;
  uint64_t before_ = 0;
  uint64_t made_ = 0;
  uint64_t skipped_ = 0;
};

// Everything that the result depends on.
struct Plan {
  std::optional<Size> tile;  // no value: pictures stay whole
  Form form;
  Fractions fractions;  // empty: folds, or as the source says
  Fold fold;
  uint64_t seed = 1;
  uint64_t shard_images = 1;
  images::PixelType type = images::PixelType::kUint8;

  uint64_t image_bytes() const { return form.shape.values() * images::BytesOfPixel(type); }
};

absl::StatusOr<Plan> MakePlan(const PrepareOptions& options, const Source& source) {
  Plan plan;
  plan.seed = options.seed;
  if (options.fit != "stretch" && options.fit != "crop") {
    return absl::InvalidArgumentError(absl::StrCat("found --fit ", options.fit, "; allowed are stretch, crop"));
  }
  const std::optional<images::PixelType> type = images::PixelTypeNamed(options.dtype);
  if (!type) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --dtype ", options.dtype, "; allowed are ", images::kPixelTypes));
  }
  plan.type = *type;
  absl::StatusOr<Form> form = MakeForm({.size = options.size,
                                        .grey = options.grey,
                                        .fit = options.fit == "crop" ? Fit::kCrop : Fit::kStretch,
                                        .size_key = "--size"},
                                       source);
  if (!form.ok()) return form.status();
  plan.form = *std::move(form);
  if (options.folds > 0) {
    if (!options.split.empty() || options.fold < 1 || options.fold > options.folds) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found --folds ", options.folds, " with --fold ", options.fold, options.split.empty() ? "" : " and --split",
          "; allowed is a fold of 1 to ", options.folds, ", without --split"));
    }
    plan.fold = {.folds = options.folds, .fold = options.fold - 1};
  } else if (!options.split.empty() || !source.has_splits()) {
    absl::StatusOr<Fractions> fractions = ParseFractions(options.split.empty() ? kDefaultSplit : options.split);
    if (!fractions.ok()) return fractions.status();
    plan.fractions = *std::move(fractions);
  }
  plan.shard_images = options.shard_images > 0
                          ? options.shard_images
                          : std::clamp<uint64_t>(kShardBytes / plan.image_bytes(), 1, kShardImagesMax);
  const uint64_t rows = std::min<uint64_t>(plan.shard_images, source.samples().size());
  if (rows * plan.image_bytes() > kShardBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("found --shard-images ", options.shard_images, " with images of ",
                                                   plan.image_bytes(), " bytes; allowed are ", kShardBytesMax,
                                                   " bytes together, which are in memory at a time"));
  }
  return plan;
}

std::string SettingsOf(const PrepareOptions& options, const Plan& plan, const Source& source) {
  Json split = "source";
  if (plan.fold.folds > 0) split = {{"folds", plan.fold.folds}, {"fold", plan.fold.fold + 1}};
  if (!plan.fractions.empty()) {
    split = Json::object();
    for (int i = 0; i < kSplits; ++i) split[kSplitNames[i]] = plan.fractions[i];
  }
  Json settings = {{"size", absl::StrCat(plan.form.shape.width, "x", plan.form.shape.height)},
                   {"scaled", plan.form.scaled},
                   {"fit", options.fit},
                   {"channels", plan.form.shape.channels},
                   {"split", split},
                   {"seed", plan.seed},
                   {"shard_images", plan.shard_images},
                   {"source",
                    {{"kind", std::string(NameOf(source.kind()))},
                     {"images", source.samples().size()},
                     {"xxh3", absl::StrFormat("%016x", source.Digest())}}}};
  // Folders from before these settings existed have none.
  if (plan.tile) settings[kTileSetting] = absl::StrCat(plan.tile->width, "x", plan.tile->height);
  if (plan.type != images::PixelType::kUint8) settings[kTypeSetting] = std::string(images::NameOf(plan.type));
  return DumpJson(settings, 2) + "\n";
}

absl::Status CheckClasses(const Source& source) {
  for (const std::string& name : source.classes()) {
    if (IsUtf8(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the name of class ", ValidText(name), " is no UTF-8; allowed are names in UTF-8"));
  }
  return absl::OkStatus();
}

uint32_t JobsOf(const PrepareOptions& options) {
  return options.jobs > 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
}

// Reads all pictures to learn their sizes, and replaces them by their tiles.
absl::Status CutIntoTiles(const PrepareOptions& options, Size tile, Source& source) {
  std::vector<absl::StatusOr<Size>> sizes(source.samples().size(), absl::UnknownError("was not read"));
  ProgressLine line("measured", sizes.size(), options.quiet);
  Decoders(JobsOf(options))
      .Run(
          sizes.size(),
          [&](size_t i) {
            const absl::StatusOr<Image> image = source.Read(source.samples()[i]);
            if (image.ok()) {
              sizes[i] = Size{.width = image->width, .height = image->height};
            } else {
              sizes[i] = image.status();
            }
          },
          [&line](size_t done) { line.Show(done); });
  return source.CutIntoTiles(tile, sizes);
}

// What all shards together come to.
struct Result {
  images::PreparedIndex index;
  std::vector<Skipped> skipped;
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const Source& source, const Plan& plan, const OutputFolder& output)
      : options_(options), source_(source), plan_(plan), output_(output) {}

  absl::StatusOr<Result> Run() {
    const auto splits = SplitSamples(source_, plan_.fractions, plan_.fold, plan_.seed);
    Decoders decoders(JobsOf(options_));
    ShardMaker maker(source_, plan_.form, plan_.type, decoders);
    ProgressLine line("prepared", source_.samples().size(), options_.quiet);
    Result result;
    result.skipped = source_.skipped();
    for (int i = 0; i < kSplits; ++i) {
      images::PreparedSplit split;
      split.name = kSplitNames[i];
      split.class_counts.resize(source_.classes().size());
      std::vector<uint64_t> sums(plan_.form.shape.channels);
      std::vector<absl::uint128> square_sums(plan_.form.shape.channels);
      const absl::Span<const uint32_t> all(splits[i]);
      for (uint64_t begin = 0, number = 0; begin < all.size(); begin += plan_.shard_images, ++number) {
        const auto part = all.subspan(begin, plan_.shard_images);
        const absl::StatusOr<ShardRecord> record =
            FindOrMake(maker, part, absl::StrFormat("%s-%05d", split.name, number), line);
        if (!record.ok()) return record.status();
        for (size_t c = 0; c < sums.size(); ++c) {
          sums[c] += record->sums[c];
          square_sums[c] += record->square_sums[c];
        }
        for (size_t c = 0; c < split.class_counts.size(); ++c) split.class_counts[c] += record->class_counts[c];
        result.skipped.insert(result.skipped.end(), record->skipped.begin(), record->skipped.end());
        if (record->shard.rows > 0) split.shards.push_back(record->shard);
      }
      if (i == 0) SetMoments(sums, square_sums, split.rows(), result.index);
      result.index.splits.push_back(std::move(split));
    }
    return result;
  }

  uint64_t found() const { return found_; }

 private:
  absl::StatusOr<ShardRecord> FindOrMake(ShardMaker& maker, absl::Span<const uint32_t> samples, const std::string& stem,
                                         ProgressLine& line) {
    const std::string path = output_.RecordPath(stem);
    const absl::StatusOr<std::string> text = ReadWhole(path);
    if (text.ok()) {
      images::PreparedIndex like;
      like.shape = plan_.form.shape;
      like.type = plan_.type;
      auto record = ParseShardRecord(*text, source_.classes().size(), plan_.form.shape.channels);
      if (record.ok() && IsWhole(options_.folder, *record, like)) {
        ++found_;
        line.Add(samples.size(), record->skipped.size(), /*made=*/false);
        return record;
      }
    }
    absl::StatusOr<ShardRecord> record =
        maker.Make(samples, options_.folder, stem, [&line](size_t done) { line.Show(done); });
    if (!record.ok()) return record;
    if (absl::Status written = WriteText(path, ToJson(*record)); !written.ok()) return written;
    line.Add(samples.size(), record->skipped.size(), /*made=*/true);
    return record;
  }

  void SetMoments(const std::vector<uint64_t>& sums, const std::vector<absl::uint128>& square_sums, uint64_t rows,
                  images::PreparedIndex& index) const {
    const double white = plan_.type == images::PixelType::kUint8 ? kPixelMax : images::kHalfUnits;
    const double pixels = std::max(1.0, static_cast<double>(rows) * plan_.form.shape.height * plan_.form.shape.width);
    for (size_t c = 0; c < sums.size(); ++c) {
      const double mean = static_cast<double>(sums[c]) / pixels;
      const double variance = static_cast<double>(square_sums[c]) / pixels - mean * mean;
      const bool nothing = plan_.type != images::PixelType::kUint8 && variance < kVarianceMin * white * white;
      index.mean.push_back(mean / white);
      index.deviation.push_back(nothing ? 0 : std::sqrt(std::max(0.0, variance)) / white);
    }
  }

  const PrepareOptions& options_;
  const Source& source_;
  const Plan& plan_;
  const OutputFolder& output_;
  uint64_t found_ = 0;  // shards of an earlier attempt
};

std::string SkippedCsv(std::vector<Skipped> skipped) {
  std::sort(skipped.begin(), skipped.end(), [](const Skipped& a, const Skipped& b) { return a.name < b.name; });
  std::string csv = "path,reason\n";
  for (const Skipped& one : skipped) absl::StrAppend(&csv, CsvField(one.name), ",", CsvField(one.reason), "\n");
  return csv;
}

std::string Describe(const images::PreparedIndex& index) {
  return absl::StrCat(index.classes.size(), " classes, ", index.shape.channels, " x ", index.shape.height, " x ",
                      index.shape.width, index.type == images::PixelType::kUint8 ? "" : " float16", ": ",
                      absl::StrJoin(index.splits, ", ", [](std::string* out, const images::PreparedSplit& split) {
                        absl::StrAppend(out, split.name, " ", split.rows());
                      }));
}

// There is something to train on.
absl::Status CheckResult(const Result& result, const Source& source) {
  uint64_t rows = 0;
  for (const images::PreparedSplit& split : result.index.splits) rows += split.rows();
  if (rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat("none of the ", source.samples().size(),
                                                   " images can be prepared; the first is ", result.skipped[0].name,
                                                   ": ", result.skipped[0].reason));
  }
  if (result.index.splits[0].rows() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("no image is left for train; ", result.skipped.size(), " of ",
                                                   source.samples().size(), " cannot be prepared"));
  }
  return absl::OkStatus();
}

// What is written would be read the next time, but for IDX, whose files have names of their own.
absl::Status CheckApart(const PrepareOptions& options, const Source& pictures) {
  if (pictures.kind() == images::pictures::SourceKind::kIdx) return absl::OkStatus();
  std::error_code error;
  const std::string source = std::filesystem::weakly_canonical(options.source, error).string();
  const std::string folder = std::filesystem::weakly_canonical(options.folder, error).string();
  if (source.empty() || (folder != source && !absl::StartsWith(folder, source + "/"))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found ", options.folder, " within ", options.source, "; allowed is a folder outside of it"));
}

void WarnOfEmptyClasses(const images::PreparedIndex& index) {
  for (size_t c = 0; c < index.classes.size(); ++c) {
    uint64_t images = 0;
    for (const images::PreparedSplit& split : index.splits) images += split.class_counts[c];
    const bool untrained = images > 0 && index.splits.front().class_counts[c] == 0;
    if (images > 0 && !untrained) continue;
    std::fprintf(stderr, "slackline: warning: class %s has no image %s\n", index.classes[c].c_str(),
                 untrained ? "in train" : "that can be read");
  }
}

absl::Status Run(const PrepareOptions& options) {
  absl::StatusOr<Source> source = Source::Open(options.source, options.label_file);
  if (!source.ok()) return source.status();
  if (absl::Status apart = CheckApart(options, *source); !apart.ok()) return apart;
  if (absl::Status classes = CheckClasses(*source); !classes.ok()) return classes;
  std::optional<Size> tile;
  if (!options.tile.empty()) {
    const absl::StatusOr<Size> size = SizeOf({.size = options.tile, .size_key = "--tile"});
    if (!size.ok()) return size.status();
    if (absl::Status cut = CutIntoTiles(options, *size, *source); !cut.ok()) return cut;
    tile = *size;
  }
  absl::StatusOr<Plan> plan = MakePlan(options, *source);
  if (!plan.ok()) return plan.status();
  plan->tile = tile;
  const std::string settings = SettingsOf(options, *plan, *source);
  absl::StatusOr<OutputFolder> output = OutputFolder::Open(options.folder, settings, options.overwrite);
  if (!output.ok()) return output.status();
  if (output->state() == OutputFolder::State::kWhole) {
    output->RemovePartial();
    const auto index = images::ReadPreparedIndex(options.folder);
    if (!index.ok()) return index.status();
    std::printf("%s is there already, with %s\n", options.folder.c_str(), Describe(*index).c_str());
    return absl::OkStatus();
  }
  Preparation preparation(options, *source, *plan, *output);
  absl::StatusOr<Result> result = preparation.Run();
  if (!result.ok()) return result.status();
  if (absl::Status usable = CheckResult(*result, *source); !usable.ok()) {
    // Another attempt, with better files, begins anew.
    output->RemovePartial();
    return usable;
  }
  images::PreparedIndex& index = result->index;
  index.classes = source->classes();
  index.shape = plan->form.shape;
  index.type = plan->type;
  index.skipped = result->skipped.size();
  index.settings = settings;
  absl::Status written = WriteText(absl::StrCat(options.folder, "/", kSkippedFile), SkippedCsv(result->skipped));
  if (written.ok()) {
    written = WriteText(absl::StrCat(options.folder, "/", images::kPreparedIndexFile), images::ToJson(index));
  }
  if (!written.ok()) return written;
  output->RemovePartial();
  WarnOfEmptyClasses(index);
  if (preparation.found() > 0) {
    std::printf("%lu shards of an earlier attempt were whole\n", static_cast<unsigned long>(preparation.found()));
  }
  if (index.skipped > 0) {
    std::printf("%lu files were skipped: %s/%s says why\n", static_cast<unsigned long>(index.skipped),
                options.folder.c_str(), kSkippedFile);
  }
  std::printf("%s has %s\n", options.folder.c_str(), Describe(index).c_str());
  return absl::OkStatus();
}

// Says what is wrong with a shard; true if nothing.
bool VerifyShard(const std::string& folder, const images::PreparedShard& shard, const images::PreparedIndex& index) {
  const absl::StatusOr<images::MappedShard> mapped = images::OpenShard(images::InFolder(folder), shard, index);
  absl::Status status = mapped.status();
  if (status.ok()) status = images::CheckBytes(*mapped, shard);
  if (status.ok()) status = images::CheckLabels(*mapped, shard, index.classes.size());
  if (status.ok()) status = images::CheckPixels(*mapped, shard, index);
  if (!status.ok()) std::fprintf(stderr, "slackline prepare: %s\n", std::string(status.message()).c_str());
  return status.ok();
}

}  // namespace
}  // namespace prepare

int Prepare(const PrepareOptions& options) {
  const absl::Status status = prepare::Run(options);
  if (status.ok()) return kExitDone;
  std::fprintf(stderr, "slackline prepare: %s\n", std::string(status.message()).c_str());
  const bool wrong_use =
      absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
  return wrong_use ? kExitWrongUse : kExitFailed;
}

int VerifyPrepared(const std::string& folder) {
  const absl::StatusOr<images::PreparedIndex> index = images::ReadPreparedIndex(folder);
  if (!index.ok()) {
    std::fprintf(stderr, "slackline prepare: %s\n", std::string(index.status().message()).c_str());
    return absl::IsNotFound(index.status()) ? kExitWrongUse : kExitFailed;
  }
  uint64_t files = 0, broken = 0;
  for (const images::PreparedSplit& split : index->splits) {
    for (const images::PreparedShard& shard : split.shards) {
      files += 2;
      if (!prepare::VerifyShard(folder, shard, *index)) ++broken;
    }
  }
  if (broken > 0) return kExitFailed;
  std::printf("%s is whole: %lu files, %s\n", folder.c_str(), static_cast<unsigned long>(files),
              prepare::Describe(*index).c_str());
  return kExitDone;
}

}  // namespace slackline::cli
