#include "ps/store/checkpoint_part.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::ps {
namespace {

constexpr char kWeights[] = "weights";

checkpoint::ShardHeader ToHeader(JobId job, const ShardCut& cut) {
  checkpoint::ShardHeader header;
  header.set_job(job.value());
  header.set_shard(cut.shard.value());
  header.set_begin(cut.extent.begin);
  header.set_end(cut.extent.end);
  header.set_trained(cut.extent.trained);
  const auto add = [&](const std::string& name, uint64_t elements) {
    checkpoint::Array& array = *header.add_arrays();
    array.set_name(name);
    array.set_elements(elements);
  };
  add(kWeights, cut.extent.size());
  for (const std::string& name : cut.arrays) add(name, ArrayElements(cut.extent, name));
  header.set_lineage(cut.version.lineage.value());
  header.set_version(cut.version.number);
  header.set_samples_applied(cut.numbers.progress.samples_applied);
  header.set_optimizer_steps(cut.numbers.progress.steps);
  header.set_staleness_mean(cut.numbers.progress.staleness_mean);
  header.set_engine_samples(cut.engine_samples);
  header.set_clock_min(cut.clock_min.value());
  return header;
}

absl::Status CheckFits(const checkpoint::ModelReader& reader, const ShardExtent& extent,
                       const std::vector<std::string>& arrays) {
  const checkpoint::Manifest& manifest = reader.manifest();
  const uint64_t trained_end = std::clamp(manifest.trained_elements(), extent.begin, extent.end);
  if (extent.end > manifest.elements() || extent.begin + extent.trained != trained_end) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint's model has ", manifest.elements(), " elements, ",
                                                      manifest.trained_elements(),
                                                      " of them trained; this shard has those from ", extent.begin,
                                                      " to ", extent.end, ", ", extent.trained, " of them trained"));
  }
  std::vector<std::string> wanted = {kWeights};
  wanted.insert(wanted.end(), arrays.begin(), arrays.end());
  if (wanted == reader.arrays()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the checkpoint has ", absl::StrJoin(reader.arrays(), ", "),
                                                    "; this job's optimizer needs ", absl::StrJoin(wanted, ", "),
                                                    ": go on with the optimizer's settings that it was made with"));
}

}  // namespace

absl::StatusOr<wire::CheckpointFile> WriteCut(const std::string& folder, JobId job, const ShardCut& cut,
                                              absl::FunctionRef<bool()> stopped) {
  absl::StatusOr<std::unique_ptr<checkpoint::ShardFileWriter>> writer =
      checkpoint::ShardFileWriter::Create(folder, ToHeader(job, cut));
  if (!writer.ok()) return writer.status();
  std::vector<const SliceView*> arrays = {&cut.numbers.weights};
  for (const SliceView& array : cut.numbers.arrays) arrays.push_back(&array);
  for (const SliceView* const array : arrays) {
    for (size_t chunk = 0; chunk < array->chunks(); ++chunk) {
      if (stopped()) return absl::CancelledError("the server is stopping, or a later checkpoint was begun");
      const absl::Span<const float> values = array->chunk(chunk);
      // Nobody could go on from it, and it would take the place of one that is good.
      const ByteSegments bytes({reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)});
      if (array == arrays[0] && !CheckFinite(bytes)) return absl::FailedPreconditionError("a weight is not finite");
      if (absl::Status status = (*writer)->Append(values); !status.ok()) return status;
    }
  }
  return (*writer)->Finish();
}

absl::StatusOr<EngineState> ReadPart(checkpoint::ModelReader& reader, const ShardExtent& extent,
                                     const std::vector<std::string>& arrays, ShardState& shard) {
  if (absl::Status status = CheckFits(reader, extent, arrays); !status.ok()) return status;
  const absl::StatusOr<checkpoint::ShardHeader> header = reader.HeaderOf(extent.begin, extent.end);
  if (!header.ok()) return header.status();
  const ShardProgress progress = {.samples_applied = header->samples_applied(),
                                  .steps = header->optimizer_steps(),
                                  .staleness_mean = header->staleness_mean()};
  const absl::Status read =
      shard.Restore(progress, [&](std::optional<size_t> array, uint64_t begin, absl::Span<float> out) {
        return reader.Read(array ? *array + 1 : 0, extent.begin + begin, out);
      });
  if (!read.ok()) return read;
  return EngineState{.version = {Lineage(static_cast<uint32_t>(header->lineage())), header->version()},
                     .samples_applied = header->engine_samples(),
                     .clock_floor = Clock64(header->clock_min()),
                     .workers = {},
                     .gone = {}};
}

}  // namespace slackline::ps
