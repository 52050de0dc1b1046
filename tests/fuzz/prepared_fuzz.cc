// Indexes, headers and halves of prepared images, and tables of labels: refused with a reason, or the same when written
// again.
#include <vector>

#include "common/base/check.h"
#include "images/base/halves.h"
#include "images/base/npy.h"
#include "images/pictures/label_file.h"
#include "images/prepared/prepared_index.h"
#include "tests/fuzz/bytes_input.h"

namespace slackline {
namespace {

void TryIndex(const std::string& text) {
  const auto index = images::ParsePreparedIndex(text);
  if (!index.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(index.status()) && !index.status().message().empty());
    return;
  }
  const std::string again = images::ToJson(*index);
  const auto same = images::ParsePreparedIndex(again);
  SLACKLINE_CHECK(same.ok() && images::ToJson(*same) == again && same->type == index->type);
  SLACKLINE_CHECK(images::PixelTypeNamed(images::NameOf(index->type)) == index->type);
}

void TryHeader(const std::string& text) {
  const auto header = images::ParseNpyHeader(text);
  if (!header.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(header.status()) && !header.status().message().empty());
    return;
  }
  SLACKLINE_CHECK(header->data_offset <= text.size());
  const auto same = images::ParseNpyHeader(images::NpyHeaderText(header->type, header->shape));
  SLACKLINE_CHECK(same.ok() && same->type == header->type && same->shape == header->shape);
}

// An image of the bytes that there are: refused, or floats that may be trained on.
void TryHalves(const std::string& text) {
  const auto* halves = reinterpret_cast<const uint8_t*>(text.data());
  std::vector<float> values(text.size() / sizeof(uint16_t));
  const absl::Status pixels = images::CheckHalves("file", 0, halves, values.size());
  images::ReadHalves(halves, absl::MakeSpan(values));
  size_t wrong = 0;
  for (const float value : values) wrong += value >= 0 && value <= 1 ? 0 : 1;
  SLACKLINE_CHECK(pixels.ok() == (wrong == 0));
  SLACKLINE_CHECK(pixels.ok() || (absl::IsInvalidArgument(pixels) && !pixels.message().empty()));
}

void TryLabels(const std::string& text) {
  const auto table = images::pictures::ParseLabels(text);
  if (!table.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(table.status()) && !table.status().message().empty());
    return;
  }
  std::string again = "path,label\n";
  for (const images::pictures::LabelRow& row : table->rows) {
    again += images::pictures::CsvField(row.path) + "," + images::pictures::CsvField(row.label) + "\n";
  }
  const auto same = images::pictures::ParseLabels(again);
  SLACKLINE_CHECK(same.ok() && same->rows.size() == table->rows.size());
  for (size_t i = 0; i < table->rows.size(); ++i) {
    SLACKLINE_CHECK(same->rows[i].path == table->rows[i].path && same->rows[i].label == table->rows[i].label);
  }
}

}  // namespace
}  // namespace slackline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput input(data, size);
  const uint64_t which = input.TakeUpTo(3);
  const auto rest = input.TakeRest();
  const std::string text(rest.begin(), rest.end());
  if (which == 0) slackline::TryIndex(text);
  if (which == 1) slackline::TryHeader(text);
  if (which == 2) slackline::TryLabels(text);
  if (which == 3) slackline::TryHalves(text);
  return 0;
}
