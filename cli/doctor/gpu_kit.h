// The GPU kit (docs/gpu.md): programs, tests and benchmarks that check a machine with a GPU.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli::doctor {

// Returns the folder of an unpacked kit: `folder`, or if that is empty the kit whose program this is (`programs` is the
// program's folder), or gpu-kit in the working directory.
//   kNotFound  there is none
absl::StatusOr<std::filesystem::path> FindGpuKit(const std::filesystem::path& folder,
                                                 const std::filesystem::path& programs);

// Replaces this process with the kit, which writes its results into `out`. Returns only on failure.
//   kNotFound  there is no kit
absl::Status RunGpuKit(const std::filesystem::path& folder, const std::string& out);

}  // namespace slackline::cli::doctor
