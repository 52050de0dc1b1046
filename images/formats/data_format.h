// The formats of images that a job may have (data.format): how each is checked before a run, and opened.
// common/job/data_formats.h says which settings a job may have with each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "images/dataset/dataset.h"
#include "job.pb.h"

namespace slackline::images {

class ImagePeers;
class SpreadShards;

// The images to open.
struct DataRequest {
  job::Data settings = {};
  uint32_t classes = 0;                           // of the model
  std::string evaluation_split = "test";          // takes the place of data.evaluation_split
  std::string last_split = "";                    // of the last evaluation; empty: the same as of the others
  absl::Duration give_up = absl::ZeroDuration();  // longest time without data from a server of images
  // With data.sampling: by_file and a cache, opens only labels: Dataset::Fetch() gets the images of a task.
  bool on_demand = false;
};

struct JobData {
  Dataset train;
  Dataset test;                          // images of evaluations
  std::optional<Dataset> last_test;      // images of the last evaluation; absent: the same as of the others
  std::vector<std::string> class_names;  // name of each class
  // Fingerprint of the training images, which differs for other images. 0: not known, for data.format folder and
  // webdataset.
  uint64_t fingerprint = 0;
  // Files of `train` that this node keeps and borrows, with data.cache.spread; else null. Shared with `train`.
  std::shared_ptr<SpreadShards> spread = nullptr;
};

// Training images, as a file says without the images being opened.
struct TrainingImages {
  uint64_t count = 0;
  uint64_t fingerprint = 0;
};

struct DataFormat {
  job::Data::Format format;
  // Implements OpenJobData().
  absl::StatusOr<JobData> (*open)(const DataRequest& request, ImagePeers* peers);
  // Checks a local folder without opening images. Null: only opening tells. A message begins with the setting.
  absl::Status (*check)(const job::Data& data, uint32_t classes) = nullptr;
  // Returns nullopt if the file cannot be read or names no training images. Null: the format has no such file.
  std::optional<TrainingImages> (*look)(const job::Data& data) = nullptr;
};

// Returns the entry of a format. Each value of the enum has one.
const DataFormat& FormatOf(const job::Data& data);

// Reads or maps the images, and checks that they fit the model.
//   kNotFound          a file is missing
//   kInvalidArgument   a file is broken, or the model has another number of classes
//   kDataLoss          a checksum differs
// `peers`: workers on other nodes with which this one fetches prepared images; null: there are none. It lives as long
// as the data.
absl::StatusOr<JobData> OpenJobData(const DataRequest& request, ImagePeers* peers = nullptr);

}  // namespace slackline::images
