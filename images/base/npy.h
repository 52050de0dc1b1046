// Reads and writes the header of a file in NumPy's format, version 1.0 (NEP 1).
//
//   file   := "\x93NUMPY" 1:u8 0:u8 length:u16le dictionary:char{length} value{product of sides}
//
// The dictionary is Python's text of {'descr': type, 'fortran_order': bool, 'shape': (sides)}, then blanks and a line
// end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::images {

inline constexpr char kNpyUint8[] = "|u1";
inline constexpr char kNpyFloat16[] = "<f2";
inline constexpr char kNpyInt64[] = "<i8";
// Length of the longest header of version 1.0.
inline constexpr size_t kNpyHeaderBytesMax = 10 + 65535;

struct NpyHeader {
  std::string type;  // written as NumPy does: kNpyUint8
  std::vector<uint64_t> shape;
  uint64_t data_offset = 0;  // bytes
};

// Returns a header as numpy.save writes it. Its length is a multiple of 64 bytes.
std::string NpyHeaderText(absl::string_view type, absl::Span<const uint64_t> shape);

// Parses a header. `bytes`: the file, from its beginning.
//   kInvalidArgument  not a file of this format, another version, Fortran's order, cut short
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes);

}  // namespace slackline::images
