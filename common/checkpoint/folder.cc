#include "common/checkpoint/folder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/checkpoint/shard_file.h"
#include "common/metrics/measured.h"
#include "common/process/kill_point.h"
#include "common/storage/durable_file.h"

namespace slackline::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kManifestFile[] = "manifest.json";
constexpr char kPrefix[] = "checkpoint-";
constexpr char kPartial[] = ".partial";
constexpr char kUndone[] = ".undone";
// Readers of one checkpoint at a time.
constexpr unsigned kThreadsMax = 8;

// Slackline makes no larger numbers. The limit leaves room for the next number.
constexpr uint64_t kNumberMax = 1'000'000'000'000;

// Of "checkpoint-N", also with something behind a point.
std::optional<uint64_t> NumberIn(absl::string_view name) {
  uint64_t number = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::SimpleAtoi(name.substr(0, name.find('.')), &number)) {
    return std::nullopt;
  }
  if (number > kNumberMax) return std::nullopt;
  return number;
}

uint64_t ManifestChecksum(Manifest manifest) {
  manifest.clear_checksum();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    SLACKLINE_CHECK(manifest.SerializeToCodedStream(&coded));
  }
  return ChecksumOf(bytes);
}

std::string Print(const Manifest& manifest) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  SLACKLINE_CHECK(google::protobuf::util::MessageToJsonString(manifest, &text, options).ok());
  return text;
}

absl::Status Unavailable(absl::string_view doing, const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat("cannot ", doing, " ", path.string(), ": ", error.message()));
}

// Names in the folder that begin as checkpoints do.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (absl::StartsWith(name, kPrefix)) names.push_back(name);
  }
  return names;
}

absl::Status Remove(const fs::path& path) {
  std::error_code error;
  fs::path going = path;
  // First it is nothing, then it goes: nobody must take half of it for one that is broken, or whole.
  if (!absl::EndsWith(path.string(), kPartial)) {
    going += absl::StrCat(".old", kPartial);
    fs::rename(path, going, error);
  }
  kill_point::Passed("prune");
  if (!error) fs::remove_all(going, error);
  return error ? Unavailable("remove", path, error) : absl::OkStatus();
}

absl::Status CheckManifest(const fs::path& path, const Manifest& manifest) {
  const auto broken = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat((path / kManifestFile).string(), ": ", what));
  };
  if (manifest.format() != kManifestFormat) {
    return broken(absl::StrCat("has format ", manifest.format(), "; known is ", kManifestFormat));
  }
  if (manifest.checksum() != ManifestChecksum(manifest)) return broken("its checksum is wrong");
  uint64_t end = 0;
  for (const wire::CheckpointFile& file : manifest.files()) {
    if (file.begin() != end || file.end() < end) return broken("its shards do not follow on one another");
    if (file.file() != ShardFileName(file.shard())) return broken(absl::StrCat("found a file '", file.file(), "'"));
    end = file.end();
  }
  if (end != manifest.elements() || manifest.trained_elements() > end) {
    return broken(absl::StrCat("its shards have ", end, " elements, the model has ", manifest.elements()));
  }
  return absl::OkStatus();
}

absl::Status CheckLength(const fs::path& path, const wire::CheckpointFile& file) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path / file.file(), error);
  if (error) return absl::DataLossError(absl::StrCat((path / file.file()).string(), ": ", error.message()));
  if (bytes == file.bytes()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat((path / file.file()).string(), " has ", bytes, " bytes; it had ", file.bytes()));
}

absl::Status VerifyFile(const fs::path& path, const wire::CheckpointFile& file) {
  const absl::StatusOr<std::unique_ptr<ShardFileReader>> reader = ShardFileReader::Open(path, file);
  if (absl::IsNotFound(reader.status())) return absl::DataLossError(reader.status().message());
  return reader.ok() ? (*reader)->Verify() : reader.status();
}

}  // namespace

fs::path FolderOfRun(const std::string& configured, const fs::path& run_folder) {
  fs::path run = fs::absolute(run_folder).lexically_normal();
  if (!run.has_filename()) run = run.parent_path();  // it ended in a slash
  if (configured.empty()) return run / "checkpoints";
  const std::string text = run;
  const auto hash = static_cast<uint32_t>(ChecksumOf(text));
  return fs::absolute(configured) / absl::StrFormat("%s-%08x", run.filename().string(), hash);
}

std::string NameOf(uint64_t number) { return absl::StrFormat("%s%06d", kPrefix, number); }
std::string PartialNameOf(uint64_t number, JobId job) {
  return absl::StrFormat("%s.%016x%s", NameOf(number), job.value(), kPartial);
}

std::vector<Found> List(const fs::path& folder) {
  std::vector<Found> found;
  for (const std::string& name : NamesIn(folder)) {
    const std::optional<uint64_t> number = NumberIn(name);
    if (number && name == NameOf(*number)) found.push_back({*number, folder / name});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.number > b.number; });
  return found;
}

uint64_t LastNumber(const fs::path& folder) {
  uint64_t last = 0;
  for (const std::string& name : NamesIn(folder)) {
    last = std::max(last, NumberIn(name).value_or(0));
  }
  return last;
}

absl::StatusOr<Manifest> ParseManifest(const std::string& text, const fs::path& path) {
  Manifest manifest;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(text, &manifest, options).ok()) {
    return absl::DataLossError(absl::StrCat((path / kManifestFile).string(), " is no manifest"));
  }
  if (absl::Status status = CheckManifest(path, manifest); !status.ok()) {
    // What this version cannot read may matter, and its checksum cannot be known.
    options.ignore_unknown_fields = false;
    Manifest known;
    const auto whole = google::protobuf::util::JsonStringToMessage(text, &known, options);
    if (whole.ok()) return status;
    return absl::DataLossError(absl::StrCat(
        status.message(), "; a newer version of slackline may have written it: ", std::string(whole.message())));
  }
  return manifest;
}

absl::StatusOr<Manifest> ReadManifest(const fs::path& path) {
  std::ifstream in(path / kManifestFile, std::ios::binary);
  if (!in && errno != ENOENT && errno != ENOTDIR) {
    return absl::UnavailableError(
        absl::StrCat("cannot open ", (path / kManifestFile).string(), ": ", std::strerror(errno)));
  }
  if (!in) return absl::NotFoundError(absl::StrCat("found no checkpoint in ", path.string(), " (", kManifestFile, ")"));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) return absl::UnavailableError(absl::StrCat("cannot read ", (path / kManifestFile).string()));
  return ParseManifest(text.str(), path);
}

absl::Status Verify(const fs::path& path, const Manifest& manifest, bool thorough) {
  const int count = manifest.files_size();
  for (const wire::CheckpointFile& file : manifest.files()) {
    if (absl::Status status = CheckLength(path, file); !status.ok()) return status;
  }
  if (!thorough) return absl::OkStatus();
  std::vector<absl::Status> found(static_cast<size_t>(count));
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i = next++; i < count; i = next++) found[static_cast<size_t>(i)] = VerifyFile(path, manifest.files(i));
  };
  std::vector<std::thread> threads;
  const unsigned others = std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax) - 1;
  for (unsigned i = 0; i < others && i + 1 < static_cast<unsigned>(count); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : found) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<fs::path> Commit(const fs::path& folder, Manifest manifest) {
  const fs::path partial = folder / PartialNameOf(manifest.number(), JobId(manifest.scheduler().job()));
  const fs::path whole = folder / NameOf(manifest.number());
  for (const wire::CheckpointFile& file : manifest.files()) {
    const absl::Status status = CheckLength(partial, file);
    if (status.ok()) continue;
    return absl::FailedPreconditionError(absl::StrCat("what a server has written is not here: ", status.message(),
                                                      "; checkpoint.folder must be seen by the scheduler and by all ",
                                                      "servers"));
  }
  manifest.set_format(kManifestFormat);
  // The checksum is of what a reader gets: JSON has one NaN, and a double has many.
  const std::string printed = Print(manifest);
  google::protobuf::util::JsonParseOptions parse;
  manifest.Clear();
  SLACKLINE_CHECK(google::protobuf::util::JsonStringToMessage(printed, &manifest, parse).ok());
  manifest.set_checksum(ManifestChecksum(manifest));
  const std::string text = Print(manifest);
  if (const absl::Status readable = ParseManifest(text, partial).status(); !readable.ok()) return readable;
  DurableFile file(partial / kManifestFile);
  absl::Status status = file.Open();
  if (status.ok()) status = file.Write(text.data(), text.size());
  if (status.ok()) status = file.Commit();
  if (!status.ok()) return status;
  kill_point::Passed("checkpoint-rename");
  std::error_code error;
  fs::rename(partial, whole, error);
  if (error) return Unavailable("rename to", whole, error);
  kill_point::Passed("checkpoint-named");
  status = SyncFolder(folder);
  if (!status.ok()) return status;
  return whole;
}

ComparedMetric MetricOf(const Best& best) {
  if (best.by_loss()) return {.name = std::string(kLossMetric), .lower_is_better = true};
  return {.name = best.metric().empty() ? std::string(kAccuracyMetric) : best.metric(),
          .lower_is_better = best.lower_is_better()};
}

namespace {

// Those that were made for an evaluation, the best first, by what the newest of them goes by; where two are equally
// good the newer one.
std::vector<Found> BestFirst(const std::vector<Found>& newest_first) {
  std::vector<std::pair<double, Found>> ranked;
  std::optional<ComparedMetric> metric;
  for (const Found& found : newest_first) {
    const absl::StatusOr<Manifest> manifest = ReadManifest(found.path);
    if (!manifest.ok() || !manifest->has_best()) continue;
    const Best& best = manifest->best();
    if (!metric) metric = MetricOf(best);
    const std::optional<double> value = MeasuredValue(metric->name, best.evaluation());
    if (value && std::isfinite(*value)) ranked.emplace_back(metric->Gain(*value, 0), found);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Found> best;
  for (auto& [value, found] : ranked) best.push_back(std::move(found));
  return best;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Prune(const fs::path& folder, const Kept& kept, const fs::path& spared) {
  std::vector<std::string> names;
  const std::vector<Found> whole = List(folder);
  std::set<fs::path> stay = {spared};
  if (kept.best > 0) {
    const std::vector<Found> best = BestFirst(whole);
    for (size_t i = 0; i < std::min(kept.best, best.size()); ++i) stay.insert(best[i].path);
  }
  for (size_t i = kept.newest; i < whole.size(); ++i) {
    if (stay.contains(whole[i].path)) continue;
    if (absl::Status removed = Remove(whole[i].path); !removed.ok()) return removed;
    names.push_back(whole[i].path.filename());
  }
  return names;
}

absl::Status PrunePartial(const fs::path& folder, uint64_t number) {
  absl::Status status;
  for (const std::string& name : NamesIn(folder)) {
    if (absl::EndsWith(name, kPartial) && NumberIn(name).value_or(number + 1) <= number) {
      status.Update(Remove(folder / name));
    }
  }
  return status;
}

absl::Status PutAsideAfter(const fs::path& folder, uint64_t number) {
  for (const Found& found : List(folder)) {
    if (found.number <= number) continue;
    std::error_code error;
    fs::rename(found.path, found.path.string() + kUndone, error);
    if (error) return Unavailable("rename", found.path, error);
  }
  return absl::OkStatus();
}

namespace {

// The first that is whole. `what`: they are.
absl::StatusOr<Choice> ChooseFirst(const fs::path& folder, const std::vector<Found>& candidates, const char* what) {
  std::vector<std::string> passed_over;
  std::error_code error;
  fs::directory_iterator readable(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) return Unavailable("list", folder, error);
  for (const Found& found : candidates) {
    absl::StatusOr<Manifest> manifest = ReadManifest(found.path);
    const absl::Status status = manifest.ok() ? Verify(found.path, *manifest, /*thorough=*/true) : manifest.status();
    if (status.ok()) return Choice{found.path, *std::move(manifest), std::move(passed_over)};
    if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) return status;
    passed_over.push_back(absl::StrCat(NameOf(found.number), ": ", status.message()));
  }
  return absl::NotFoundError(
      absl::StrCat("found no whole checkpoint ", what, "in ", folder.string(),
                   passed_over.empty() ? "" : "; passed over: ", absl::StrJoin(passed_over, "; ")));
}

}  // namespace

absl::StatusOr<Choice> ChooseNewest(const fs::path& folder) { return ChooseFirst(folder, List(folder), ""); }

absl::StatusOr<Choice> ChooseBest(const fs::path& folder) {
  return ChooseFirst(folder, BestFirst(List(folder)), "of a best evaluation (checkpoint.keep_best) ");
}

}  // namespace slackline::checkpoint
