// Some installed trees have programs for LibTorch and no LibTorch: a wheel uses that of pip's torch, an archive that of
// the machine. The file share/slackline/libtorch.txt of such a tree has three lines, for example
//
//   2.13.0                        version that the programs are built for
//   ../../../torch/lib            folder, seen from bin/, in which they look for its libraries first
//   pip install torch==2.13.0     what to do if it is missing, or has another version
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace slackline::cli {

// Checks that the loader will find the LibTorch that the programs in the folder `bin` are built for. Trees without
// libtorch.txt pass. So does a LibTorch that does not say its version (build-version, or version.py of pip's torch,
// beside its folder lib). `library_path` is LD_LIBRARY_PATH, where the loader looks second.
//   kFailedPrecondition  there is none, or its version differs; names both
absl::Status CheckLibTorch(const std::filesystem::path& bin, absl::string_view library_path);

}  // namespace slackline::cli
