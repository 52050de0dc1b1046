// Reads one IDX file, the format of MNIST, plain or gzipped.
//
//   file  := 0 0 type:u8 rank:u8 side:u32be{rank} value{product of sides}
//
// Only type 8, uint8, is known here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::worker {

struct IdxArray {
  std::vector<uint32_t> shape;
  std::vector<uint8_t> values;  // the first `kept` of the outermost side
  uint64_t kept = 0;
};

// What the caller expects, and how much of it.
struct IdxRequest {
  uint8_t rank = 1;
  uint64_t keep_max = 0;  // of the outermost side; 0 keeps all
};

// Reads `folder`/`name` or, where there is none, `folder`/`name`.gz. The file is read to its end in either case, so
// that damage shows even in what is not kept.
//   kNotFound         no such file; names both names that were tried
//   kInvalidArgument  not IDX, another type or rank, cut short, trailing bytes, damaged gzip
absl::StatusOr<IdxArray> ReadIdxFile(const std::string& folder, const std::string& name, const IdxRequest& request);

}  // namespace slackline::worker
