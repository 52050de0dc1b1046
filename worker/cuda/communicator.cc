#include "worker/cuda/communicator.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/time/clock.h"
#include "worker/cuda/cuda_status.h"

namespace slackline::worker::gpu {

absl::StatusOr<ncclUniqueId> Communicator::NewId() {
  ncclUniqueId id;
  const ncclResult_t said = ncclGetUniqueId(&id);
  if (said == ncclSuccess) return id;
  return absl::InternalError(absl::StrCat("NCCL does not begin: ", ncclGetErrorString(said)));
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const Device& device, const Rank& rank,
                                                                   const ncclUniqueId& id, absl::Duration timeout) {
  std::unique_ptr<Communicator> made(new Communicator(device, timeout));
  const absl::Status status = made->Call("joining the group", [&, &self = *made]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(&self.comm_, rank.count, id, rank.number, &config);
  });
  if (!status.ok()) return status;
  return made;
}

// Whoever destroys the group has waited for its streams, or has given it up.
Communicator::~Communicator() { Abort(); }

absl::Status Communicator::GivenUp(const char* doing) const {
  return absl::CancelledError(absl::StrCat(ToString(device_), ": ", doing, ": the group is given up"));
}

ncclResult_t Communicator::State() const {
  ncclResult_t said = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &said);
  return asked == ncclSuccess ? said : asked;
}

absl::Status Communicator::Call(const char* doing, const std::function<ncclResult_t()>& call) {
  const SteadyTime time;
  const absl::Time deadline = time.Now() + timeout_;
  ncclResult_t said = ncclInProgress;
  for (bool first = true; said == ncclInProgress; first = false) {
    {
      absl::MutexLock lock(&mutex_);
      if (aborted_) return GivenUp(doing);
      said = first ? call() : State();
      if (said != ncclInProgress) return NcclStatus(said, comm_, device_, doing);
    }
    if (time.Now() > deadline) break;
    std::this_thread::yield();
  }
  return absl::DeadlineExceededError(
      absl::StrCat(ToString(device_), ": ", doing, ": not done in ", absl::FormatDuration(timeout_)));
}

absl::Status Communicator::Broadcast(float* floats, size_t elements, cudaStream_t stream) {
  return Call("sending parameters", [=, this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ncclBroadcast(floats, floats, elements, ncclFloat32, /*root=*/0, comm_, stream);
  });
}

absl::Status Communicator::SetWeight(float weight) {
  const absl::Status status = Call("setting a weight", [=, this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (has_weight_) ncclRedOpDestroy(weighted_, comm_);
    has_weight_ = false;
    float factor = weight;
    return ncclRedOpCreatePreMulSum(&weighted_, &factor, ncclFloat32, ncclScalarHostImmediate, comm_);
  });
  has_weight_ = status.ok();
  return status;
}

absl::Status Communicator::Sum(float* floats, size_t elements, cudaStream_t stream) {
  return Call("summing gradients", [=, this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ncclReduce(floats, floats, elements, ncclFloat32, weighted_, /*root=*/0, comm_, stream);
  });
}

absl::Status Communicator::Broken() const {
  absl::MutexLock lock(&mutex_);
  if (aborted_) return GivenUp("NCCL");
  const ncclResult_t said = State();
  return said == ncclInProgress ? absl::OkStatus() : NcclStatus(said, comm_, device_, "NCCL");
}

void Communicator::Abort() {
  absl::MutexLock lock(&mutex_);
  if (comm_ != nullptr && !aborted_) ncclCommAbort(comm_);
  aborted_ = true;
}

}  // namespace slackline::worker::gpu
