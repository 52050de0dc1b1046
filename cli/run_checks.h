// What can be known to be wrong before a run starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/folder.h"
#include "common/security/security.h"
#include "job.pb.h"

namespace slackline::cli {

// Prints, and returns `code`.
int Fail(const absl::Status& status, int code);

// What a worker would find out only after everything has started.
absl::Status CheckData(const job::Job& job);

// That a file that the job begins with is there.
absl::Status CheckWeights(const job::Job& job);

// What of `network` the processes of a machine would complain about one after the other: its interface is not there, it
// may not be listened on, or network.ports are too few for all of a job.
absl::Status CheckNetwork(const job::Job& job);

// Why this machine cannot run the job as it is to be run; one OK where it can.
enum class Purpose { kTrain, kSimulate };
std::vector<absl::Status> CheckHere(const job::Job& job, Purpose purpose);

// How many processes of a job are on one machine.
struct Crowd {
  bool scheduler = false;
  size_t servers = 0;
  size_t workers = 0;
};
// Whether network.ports are enough for them; `where` they are, for the message.
absl::Status CheckPorts(const job::Network& network, const Crowd& crowd, const std::string& where);

// Whether `servers` more find ports of network.ports on this machine that nobody listens on.
//   kFailedPrecondition  they do not
absl::Status CheckFreePorts(const job::Job& job, uint32_t servers);

// Two schedulers must not write into one folder.
absl::Status CheckNobodyRuns(const std::filesystem::path& run, const security::Security& security);

// A run of the same folder that was deleted may have left checkpoints in checkpoint.folder: they would be taken for
// this one's.
absl::Status CheckUnused(const job::Job& job, const std::filesystem::path& run);

absl::Status CheckWorkIsLeft(const checkpoint::Choice& from, const job::Job& job);

// All roles are on this machine; the command itself is an operator.
absl::StatusOr<security::Security> OpenSecurity(const job::Job& job);

}  // namespace slackline::cli
