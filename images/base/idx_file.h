// Reads one IDX file, the format of MNIST, plain or gzipped.
//
//   file  := 0 0 type:u8 rank:u8 side:u32be{rank} value{product of sides}
//
// Only type 8, uint8, is supported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::images {

struct IdxArray {
  std::vector<uint32_t> shape;
  std::vector<uint8_t> values;  // values of the first `kept` items of the outermost side
  uint64_t kept = 0;
};

// Expected rank, and the number of items to keep.
struct IdxRequest {
  uint8_t rank = 1;
  uint64_t keep_max = 0;  // number of items of the outermost side; 0 keeps all
};

// Reads `folder`/`name` or, if it does not exist, `folder`/`name`.gz. The whole file is read, so that damage is found
// even in values that are not kept.
//   kNotFound         no such file; names both names that were tried
//   kInvalidArgument  not IDX, another type or rank, cut short, trailing bytes, damaged gzip
absl::StatusOr<IdxArray> ReadIdxFile(const std::string& folder, const std::string& name, const IdxRequest& request);

}  // namespace slackline::images
