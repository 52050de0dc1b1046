// The one place where options of the bench become settings of a job, a server and a client.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bench/exchange/options.h"
#include "common/base/ids.h"
#include "common/security/security.h"
#include "job.pb.h"
#include "ps/service/sequencer.h"
#include "worker/client/client.h"

namespace slackline::bench {

inline constexpr uint64_t kBenchJob = 1;
inline constexpr char kBenchJobName[] = "bench";

//   kInvalidArgument  the encoding is unknown
absl::StatusOr<worker::ClientOptions> MakeClientOptions(const ExchangeBenchOptions& options, WorkerId worker);

job::Job MakeJob(const ExchangeBenchOptions& options);
// Returns the security of a process with this role. Call it only in that process, since gRPC starts threads.
security::Security OpenSecurity(const ExchangeBenchOptions& options, security::Role role);

// Returns the options of a server whose port the system chooses.
ps::SequencerOptions MakeServerOptions(const ExchangeBenchOptions& options);

// Returns the transport; "auto" is replaced by the transport between processes of one host.
std::string TransportOf(const ExchangeBenchOptions& options);

// Returns the resident memory that a server with these options may use (docs/limits.md): 1.15 x (its
// parameters x (1 + superseded versions) + optimizer state) + the bytes that it may stage + 64 MB.
uint64_t ResidentBytesAllowed(const ExchangeBenchOptions& options);

}  // namespace slackline::bench
