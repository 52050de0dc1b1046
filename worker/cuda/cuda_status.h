// Converts results of CUDA and NCCL to a Status that names the device and the action.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/process/device.h"
#include "worker/cuda/collectives.h"
#include "worker/cuda/runtime.h"

namespace slackline::worker::gpu {

// Converts a result of CUDA. `doing` follows the device's name in the message: "cuda:1: copying parameters: ...".
inline absl::Status CudaStatus(cudaError_t code, const Device& device, absl::string_view doing) {
  if (code == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(ToString(device), ": ", doing, ": CUDA says ", cudaGetErrorName(code), ", ",
                                          cudaGetErrorString(code)));
}

// Converts a result of NCCL. `comm` may be null.
inline absl::Status NcclStatus(ncclResult_t code, ncclComm_t comm, const Device& device, absl::string_view doing) {
  if (code == ncclSuccess) return absl::OkStatus();
  const char* details = ncclGetLastError(comm);
  return absl::InternalError(absl::StrCat(ToString(device), ": ", doing, ": NCCL says ", ncclGetErrorString(code),
                                          details != nullptr && *details != 0 ? ", " : "",
                                          details != nullptr ? details : ""));
}

}  // namespace slackline::worker::gpu
