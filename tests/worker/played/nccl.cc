// NCCL between fake GPUs. A collective is done when the last of its ends has come; until then the others are told that
// it is in progress, as NCCL does with communicators that do not block.
#include <nccl.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/worker/played/clocks.h"

using slackline::worker::played::Clocks;
using slackline::worker::played::CurrentGpu;
using slackline::worker::played::StreamName;
using slackline::worker::played::StreamOf;

namespace {

struct End {
  const float* from = nullptr;
  float* to = nullptr;
  size_t count = 0;
  float weight = 1;
  StreamName stream;
};

struct Collective {
  bool sum = false;
  int root = 0;
  std::map<int, End> ends;  // by rank
};

struct Group {
  absl::Mutex mutex;
  int count ABSL_GUARDED_BY(mutex) = 0;
  int joined ABSL_GUARDED_BY(mutex) = 0;
  std::map<uint64_t, Collective> waiting ABSL_GUARDED_BY(mutex);  // by number
};

absl::Mutex groups_mutex(absl::kConstInit);
std::map<uint64_t, std::shared_ptr<Group>>& Groups() ABSL_EXCLUSIVE_LOCKS_REQUIRED(groups_mutex) {
  static auto* const groups = new std::map<uint64_t, std::shared_ptr<Group>>();
  return *groups;
}

void Broadcast(const Collective& collective) {
  Clocks& clocks = Clocks::Get();
  const End& root = collective.ends.at(collective.root);
  clocks.Do(root.stream, {.what = "ncclBroadcast", .reads = {{root.from, root.count * sizeof(float)}}});
  for (const auto& [rank, end] : collective.ends) {
    if (rank == collective.root) continue;
    clocks.Chain(root.stream, end.stream);
    clocks.Do(end.stream, {.what = "ncclBroadcast", .writes = {{end.to, end.count * sizeof(float)}}});
    std::memcpy(end.to, root.from, root.count * sizeof(float));
  }
}

void Reduce(const Collective& collective) {
  Clocks& clocks = Clocks::Get();
  const End& root = collective.ends.at(collective.root);
  std::vector<float> sum(root.count, 0.0f);
  for (const auto& [rank, end] : collective.ends) {
    clocks.Do(end.stream, {.what = "ncclReduce", .reads = {{end.from, end.count * sizeof(float)}}});
    if (rank != collective.root) clocks.Chain(end.stream, root.stream);
    for (size_t i = 0; i < root.count; ++i) sum[i] += end.weight * end.from[i];
  }
  clocks.Do(root.stream, {.what = "ncclReduce", .writes = {{root.to, root.count * sizeof(float)}}});
  std::memcpy(root.to, sum.data(), root.count * sizeof(float));
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int gpu = 0;
  uint64_t next = 0;  // collective
  bool aborted = false;
  std::map<int, float> weights = {};
  int last_weight = ncclNumOps;
};

namespace {

// Whether all ends of this communicator's last collective have come.
ncclResult_t StateOf(const ncclComm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(comm.group->mutex) {
  if (comm.aborted) return ncclInternalError;
  if (comm.group->joined < comm.group->count) return ncclInProgress;
  return comm.next > 0 && comm.group->waiting.contains(comm.next - 1) ? ncclInProgress : ncclSuccess;
}

ncclResult_t Join(ncclComm& comm, bool sum, int root, const End& end) {
  if (Clocks::Get().Fails(sum ? "ncclReduce" : "ncclBroadcast")) return ncclInternalError;
  absl::MutexLock lock(&comm.group->mutex);
  if (StateOf(comm) != ncclSuccess) return ncclInvalidUsage;
  if (end.stream.gpu != comm.gpu || CurrentGpu() != comm.gpu) {
    Clocks::Get().Fault(absl::StrCat("an end of NCCL of GPU ", comm.gpu, " is called on a stream of GPU ",
                                     end.stream.gpu, " with GPU ", CurrentGpu(), " as the current one"));
  }
  const uint64_t number = comm.next++;
  Collective& collective = comm.group->waiting[number];
  if (collective.ends.empty()) {
    collective.sum = sum;
    collective.root = root;
  }
  for (const auto& [rank, other] : collective.ends) {
    if (collective.sum == sum && collective.root == root && other.count == end.count) continue;
    Clocks::Get().Fault("ends of NCCL do not agree in what they do");
  }
  collective.ends[comm.rank] = end;
  if (static_cast<int>(collective.ends.size()) == comm.group->count) {
    (sum ? Reduce : Broadcast)(collective);
    comm.group->waiting.erase(number);
  }
  return StateOf(comm);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  absl::MutexLock lock(&groups_mutex);
  const uint64_t number = Groups().size();
  Groups()[number] = std::make_shared<Group>();
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) Clocks::Get().Fault("a communicator that blocks cannot be left");
  if (Clocks::Get().Fails("ncclCommInitRankConfig")) return ncclInternalError;
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  std::shared_ptr<Group> group;
  {
    absl::MutexLock lock(&groups_mutex);
    group = Groups().at(number);
  }
  *comm = new ncclComm{.group = group, .rank = rank, .gpu = CurrentGpu()};
  absl::MutexLock lock(&group->mutex);
  group->count = ranks;
  ++group->joined;
  return StateOf(**comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* said) {
  absl::MutexLock lock(&comm->group->mutex);
  *said = StateOf(*comm);
  return ncclSuccess;
}

// It is not given back: a test may ask it still.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  absl::MutexLock lock(&comm->group->mutex);
  comm->aborted = true;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t said) {
  return said == ncclSuccess ? "no error" : said == ncclInvalidUsage ? "invalid usage" : "internal error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t /*type*/, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Join(*comm, false, root,
              {static_cast<const float*>(from), static_cast<float*>(to), count, 1, StreamOf(stream)});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t /*type*/, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const float weight = op == ncclSum ? 1 : comm->weights.at(op);
  return Join(*comm, true, root,
              {static_cast<const float*>(from), static_cast<float*>(to), count, weight, StreamOf(stream)});
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t /*type*/,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  if (residence != ncclScalarHostImmediate) return ncclInvalidUsage;
  *op = static_cast<ncclRedOp_t>(comm->last_weight);
  std::memcpy(&comm->weights[comm->last_weight++], scalar, sizeof(float));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return comm->weights.erase(op) == 1 ? ncclSuccess : ncclInvalidUsage;
}

}  // extern "C"
