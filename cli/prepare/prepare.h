// `slackline prepare`: images as they are become files that training maps into its memory.
#pragma once

#include <cstdint>
#include <string>

namespace slackline::cli {

struct PrepareOptions {
  std::string source;
  std::string folder;
  std::string label_file;  // empty: none
  std::string size;        // "WxH", "N" or empty: that of the first image
  std::string fit = "stretch";
  bool grey = false;
  std::string dtype = "uint8";  // of a pixel
  std::string split;            // empty: as the source has it, or kDefaultSplit
  uint32_t folds = 0;           // 0: --split counts
  uint32_t fold = 1;            // from 1
  uint64_t seed = 1;
  uint32_t jobs = 0;          // 0: as many as there are cores
  uint32_t shard_images = 0;  // 0: as many as 64 MiB hold
  bool overwrite = false;
  bool quiet = false;
};

// Prints, and returns the exit code.
int Prepare(const PrepareOptions& options);

// Reads all files of prepared images, and says what is broken. Returns the exit code.
int VerifyPrepared(const std::string& folder);

}  // namespace slackline::cli
