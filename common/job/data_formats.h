// The settings that only some formats of images take: one row of a table per format.
#pragma once

#include <cstdint>
#include <string>

#include "job.pb.h"

namespace slackline::job_file {

// Groups of settings of section data. A set of them is a sum.
enum DataSettings : uint32_t {
  // data.mean, data.deviation. Prepared images have their own. Images with objects are normalised by the job's module.
  kNormalisation = 1,
  kVariation = 2,        // data.sampling and most of data.augment
  kEvaluationSplit = 4,  // data.evaluation_split
  kDecoding = 8,         // data.decode
  kCopies = 16,          // data.verify, data.cache, a data.path on a file server, and sampling: by_file
  kTestAtEnd = 64,       // data.test_at_end
  kObjects = 32,         // data.coco; the images have objects, not one class each
};

struct DataFormatRow {
  job::Data::Format format;
  uint32_t settings;
};

inline constexpr DataFormatRow kDataFormats[] = {
    {job::Data::IDX, kNormalisation | kVariation},
    {job::Data::PREPARED, kVariation | kEvaluationSplit | kTestAtEnd | kCopies},
    {job::Data::FOLDER, kNormalisation | kVariation | kEvaluationSplit | kTestAtEnd | kDecoding},
    {job::Data::WEBDATASET, kNormalisation | kVariation | kEvaluationSplit | kTestAtEnd | kDecoding},
    {job::Data::COCO, kEvaluationSplit | kObjects},
};

// Returns whether images of this format have these settings.
constexpr bool Takes(job::Data::Format format, DataSettings settings) {
  for (const DataFormatRow& row : kDataFormats) {
    if (row.format == format) return (row.settings & settings) != 0;
  }
  return false;
}

// Returns the formats that take these settings, for messages: "data.format: idx, folder or webdataset".
std::string FormatsThatTake(DataSettings settings);

}  // namespace slackline::job_file
