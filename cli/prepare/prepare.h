// `slackline prepare`: converts images into files that training maps into its memory.
#pragma once

#include <cstdint>
#include <string>

namespace slackline::cli {

struct PrepareOptions {
  std::string source;
  std::string folder;
  std::string label_file;  // empty: none
  std::string size;        // "WxH", "N" or empty: size of the first image
  std::string tile;        // "WxH" or "N": cut pictures into tiles of this size; empty: do not
  std::string fit = "stretch";
  bool grey = false;
  std::string dtype = "uint8";  // type of a pixel
  std::string split;            // empty: as the source has it, or kDefaultSplit
  uint32_t folds = 0;           // 0: `split` applies
  uint32_t fold = 1;            // number of the fold, counted from 1
  uint64_t seed = 1;
  uint32_t jobs = 0;          // number of threads; 0: one per core
  uint32_t shard_images = 0;  // images per shard; 0: as many as fit into 64 MiB
  bool overwrite = false;
  bool quiet = false;
};

// Prepares the images, prints the result, and returns the exit code.
int Prepare(const PrepareOptions& options);

// Reads all files of prepared images, and prints which are broken. Returns the exit code.
int VerifyPrepared(const std::string& folder);

}  // namespace slackline::cli
