#include "worker/job_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/data/class_names.h"
#include "worker/data/prepared_index.h"

namespace slackline::worker {
namespace {

absl::StatusOr<JobData> ReadIdxData(const WorkerConfig& config) {
  JobData data;
  absl::StatusOr<Dataset> train = Dataset::ReadIdx(config.data_path, "train", config.train_images_max);
  if (!train.ok()) return train.status();
  absl::StatusOr<Dataset> test = Dataset::ReadIdx(config.data_path, "t10k");
  if (!test.ok()) return test.status();
  data.train = *std::move(train);
  data.test = *std::move(test);
  if (absl::Status fits = CheckData(data.train, data.test, config.model.classes); !fits.ok()) return fits;
  absl::StatusOr<std::vector<std::string>> names = ReadClassNames(config.data_path, config.model.classes);
  if (!names.ok()) return names.status();
  data.class_names = *std::move(names);
  return data;
}

absl::StatusOr<JobData> OpenPreparedData(const WorkerConfig& config) {
  absl::StatusOr<PreparedIndex> index = ReadPreparedIndex(config.data_path);
  if (!index.ok()) return index.status();
  if (index->classes.size() != config.model.classes) {
    return absl::InvalidArgumentError(absl::StrCat(config.data_path, " has ", index->classes.size(),
                                                   " classes; model.classes is ", config.model.classes));
  }
  JobData data;
  absl::StatusOr<Dataset> train = Dataset::OpenPrepared(
      config.data_path, *index, "train", {.images_max = config.train_images_max, .verify = config.verify_data});
  if (!train.ok()) return train.status();
  absl::StatusOr<Dataset> test = Dataset::OpenPrepared(config.data_path, *index, config.evaluation_split,
                                                       {.images_max = 0, .verify = config.verify_data});
  if (!test.ok()) {
    if (index->Find(config.evaluation_split) != nullptr && index->Find(config.evaluation_split)->rows() > 0) {
      return test.status();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(test.status().message(), "; data.evaluation_split names another: test or validation"));
  }
  data.train = *std::move(train);
  data.test = *std::move(test);
  data.class_names = std::move(index->classes);
  return data;
}

}  // namespace

absl::StatusOr<JobData> ReadJobData(const WorkerConfig& config) {
  return config.prepared ? OpenPreparedData(config) : ReadIdxData(config);
}

}  // namespace slackline::worker
