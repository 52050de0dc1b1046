// Checks that find mistakes before a run starts, or continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/folder.h"
#include "common/security/security.h"
#include "job.pb.h"

namespace slackline::cli {

// Checks the job's data, for mistakes that a worker would find only after everything has started.
absl::Status CheckData(const job::Job& job);

// Checks that the files from which the job's model starts exist.
absl::Status CheckWeights(const job::Job& job);

// Checks `network` for mistakes that the processes of a machine would report one after the other: the interface does
// not exist, listening on it is not allowed, or network.ports are too few for all processes of a job.
absl::Status CheckNetwork(const job::Job& job);

// Returns the reasons why this machine cannot run the job for `purpose`; empty if it can.
enum class Purpose { kTrain, kSimulate };
std::vector<absl::Status> CheckHere(const job::Job& job, Purpose purpose);

// Numbers of a job's processes on one machine.
struct Crowd {
  bool scheduler = false;
  size_t servers = 0;
  size_t workers = 0;
};
// Checks that network.ports are enough for the processes. `where` says where they run, for the message.
absl::Status CheckPorts(const job::Network& network, const Crowd& crowd, const std::string& where);

// Checks that network.ports has enough free ports on this machine for `servers` more servers.
//   kFailedPrecondition  there are too few
absl::Status CheckFreePorts(const job::Job& job, uint32_t servers);

// Checks that no other process looks after the run, and that its scheduler does not answer: two schedulers must not
// write into one folder.
absl::Status CheckNobodyRuns(const std::filesystem::path& run, const security::Security& security);

// Checks that checkpoint.folder holds no checkpoints of this run folder. A deleted run of the same folder may have left
// some, which would be taken for checkpoints of the new run.
absl::Status CheckUnused(const job::Job& job, const std::filesystem::path& run);

absl::Status CheckWorkIsLeft(const checkpoint::Choice& from, const job::Job& job);

// Opens the credentials of an operator, the role of the command itself. Checks the certificates of all roles first,
// because all roles run on this machine.
absl::StatusOr<security::Security> OpenSecurity(const job::Job& job);

// Checks that the devices of a job exist on this machine, but only if the job names a GPU. The worker's program does
// the check: only it knows its build.
//   kFailedPrecondition  a GPU is not here, or this build has no CUDA
//   kNotFound            there is no slackline-worker beside this program
//   others               the program cannot be run
absl::Status CheckDevices(const job::Job& job);

// Checks that both jobs have the same model: a checkpoint holds the weights of one model. `before` is the job that made
// the checkpoint, `after` the job that continues from it.
//   kInvalidArgument  lists every field of `model` that differs, one per line
absl::Status CheckModelKept(const job::Job& before, const job::Job& after);

// Checks that the training images are the same. A checkpoint's place in an epoch counts `samples` training images,
// whose fingerprint is `fingerprint` (0: not known). Checks only what is cheap to know: the index of prepared images,
// and data.train_images_max. For other data, the workers report a mismatch when they join.
//   kInvalidArgument  there are more or fewer images now, or others, and data.replaces does not allow the others
absl::Status CheckImagesKept(uint64_t samples, uint64_t fingerprint, const job::Job& after);

}  // namespace slackline::cli
