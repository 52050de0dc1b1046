#include "scheduler/record/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "scheduler/record/crc32c.h"
#include "tensorboard.pb.h"

namespace slackline::scheduler {
namespace {

template <typename Integer>
std::string LittleEndian(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Integer); ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

constexpr int kColours = 3;

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

tensorboard::Event EventAt(absl::Time wall_time, uint64_t step) {
  tensorboard::Event event;
  event.set_wall_time(Seconds(wall_time));
  event.set_step(static_cast<int64_t>(step));
  return event;
}

std::string RecordOf(const tensorboard::Event& event) {
  const std::string data = event.SerializeAsString();
  const std::string length = LittleEndian<uint64_t>(data.size());
  return absl::StrCat(length, LittleEndian(MaskedCrc32c(length)), data, LittleEndian(MaskedCrc32c(data)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder, absl::Time wall_time) {
  const std::string path = absl::StrCat(folder, "/events.out.tfevents.", absl::ToUnixSeconds(wall_time), ".slackline");
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  tensorboard::Event version;
  version.set_wall_time(Seconds(wall_time));
  version.set_file_version("brain.Event:2");
  return std::unique_ptr<EventFile>(new EventFile(path, descriptor, RecordOf(version)));
}

EventFile::~EventFile() { ::close(descriptor_); }

absl::Status EventFile::Add(absl::Time wall_time, uint64_t step, const Scalars& scalars) {
  tensorboard::Event event = EventAt(wall_time, step);
  for (const auto& [tag, value] : scalars) {
    tensorboard::Summary::Value& point = *event.mutable_summary()->add_value();
    point.set_tag(tag);
    point.set_simple_value(static_cast<float>(value));
  }
  return Write(event);
}

absl::Status EventFile::AddHistogram(absl::Time wall_time, uint64_t step, const std::string& tag,
                                     const Distribution& values) {
  tensorboard::Event event = EventAt(wall_time, step);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  tensorboard::HistogramProto& out = *value.mutable_histo();
  out.set_min(values.min);
  out.set_max(values.max);
  out.set_num(values.number);
  out.set_sum(values.sum);
  out.set_sum_squares(values.sum_squares);
  out.mutable_bucket_limit()->Assign(values.limits.begin(), values.limits.end());
  out.mutable_bucket()->Assign(values.counts.begin(), values.counts.end());
  return Write(event);
}

absl::Status EventFile::AddImage(absl::Time wall_time, uint64_t step, const std::string& tag, const PngImage& image) {
  tensorboard::Event event = EventAt(wall_time, step);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  value.mutable_image()->set_height(static_cast<int32_t>(image.height));
  value.mutable_image()->set_width(static_cast<int32_t>(image.width));
  value.mutable_image()->set_colorspace(kColours);
  value.mutable_image()->set_encoded_image_string(image.bytes);
  return Write(event);
}

absl::Status EventFile::Write(const tensorboard::Event& event) {
  const std::string record = absl::StrCat(begin_, RecordOf(event));
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  ssize_t written;
  while ((written = ::write(descriptor_, record.data(), record.size())) < 0 && errno == EINTR) {
  }
  if (written == static_cast<ssize_t>(record.size())) {
    begin_.clear();
    return absl::OkStatus();
  }
  const int error = written < 0 ? errno : ENOSPC;
  // Half a record would spoil those behind it.
  const bool cut = written <= 0 || ::ftruncate(descriptor_, before) == 0;
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path_, ": ", std::strerror(error), cut ? "" : ", and it is spoilt from here on"));
}

}  // namespace slackline::scheduler
