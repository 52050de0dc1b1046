// A TensorBoard event file: curves, histograms and pictures that TensorBoard shows.
//
// Format, little-endian; a file is a sequence of records:
//   record := length:uint64  masked_crc32c(length):uint32  event:byte[length]  masked_crc32c(event):uint32
//   event  := slackline.tensorboard.Event, serialised
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/record/confusion_image.h"

namespace slackline::tensorboard {
class Event;
}

namespace slackline::scheduler {

using Scalars = std::vector<std::pair<std::string, double>>;

// A histogram of values.
struct Distribution {
  // Number of values by range: counts[i] are above limits[i - 1], and not above limits[i].
  std::vector<double> limits;
  std::vector<double> counts;
  double min = 0;
  double max = 0;
  double number = 0;
  double sum = 0;
  double sum_squares = 0;
};

class EventFile {
 public:
  // Creates FOLDER/events.out.tfevents.SECONDS.slackline, which begins at `wall_time`. A disk that is full now is
  // reported by the first event.
  //   kUnavailable  the file cannot be created
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder, absl::Time wall_time);

  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();

  // Adds one point to each of the named curves: all of them, or none.
  //   kUnavailable  the points cannot be written
  absl::Status Add(absl::Time wall_time, uint64_t step, const Scalars& scalars);
  // Adds one histogram, or one picture, in the same way.
  absl::Status AddHistogram(absl::Time wall_time, uint64_t step, const std::string& tag, const Distribution& values);
  absl::Status AddImage(absl::Time wall_time, uint64_t step, const std::string& tag, const PngImage& image);

 private:
  EventFile(std::string path, int descriptor, std::string begin)
      : path_(std::move(path)), descriptor_(descriptor), begin_(std::move(begin)) {}
  absl::Status Write(const tensorboard::Event& event);

  const std::string path_;
  const int descriptor_;
  std::string begin_;  // file header, written before the first event for which there is room
};

}  // namespace slackline::scheduler
